"""The target beside the draft: its facts and tokenizer, the tables that map one vocabulary onto the other, both heads row by row."""
