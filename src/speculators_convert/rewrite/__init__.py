"""What a rewrite is: its plan, made of segments, and what it leaves to prove it, the receipt and the manifest of split heads."""
