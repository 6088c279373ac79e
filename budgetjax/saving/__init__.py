"""Model files: a state or model as one safetensors file."""
