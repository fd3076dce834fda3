"""From a plan to a finished folder: gather what the plan needs, then follow it, streamed or linked, hashed and renamed at the end."""
