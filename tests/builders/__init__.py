"""What tests are made of: each builder makes a valid, plain thing; a test states only what matters to it."""
