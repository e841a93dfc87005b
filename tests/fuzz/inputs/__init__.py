"""What strangers write, one module for each: its examples, its grammar, and where its bytes really come in."""
