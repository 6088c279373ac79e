"""Tables: raw rows, named columns and labels, to numbers and back."""
