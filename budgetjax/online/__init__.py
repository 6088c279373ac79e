"""The online algorithms, one module each: `init`, `step`, `violates`, `update`."""
