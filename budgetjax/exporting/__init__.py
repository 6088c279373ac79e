"""Models for other runtimes: ONNX and StableHLO."""
