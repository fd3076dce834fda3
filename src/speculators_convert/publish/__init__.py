"""Before a draft is published: the gate as a whole, what the folder must satisfy, and the section of the model card."""
