"""Options and results of the commands that run a draft: values only."""
