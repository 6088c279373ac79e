"""`budgetjax export`: exports a model for machines without this package."""

import click

from budgetjax.cli import options, reading, reports

EXAMPLES = """\b
Examples:
  budgetjax export iris.safetensors --output iris.onnx
  budgetjax export iris.safetensors --output iris.stablehlo
"""


@click.command(epilog=EXAMPLES)
@click.argument("model")
@options.output(
    *(".onnx", ".stablehlo"),
    text="The .onnx file, for onnxruntime and others, or .stablehlo, for JAX.",
)
def export(model: str, output: str) -> None:
    """Write a predictor of MODEL to a file that runs without budgetjax.

    It takes raw rows and returns labels, scores and, if MODEL is calibrated,
    probabilities; or numbers. It includes the scaling and the labels.
    """
    reports.check_outputs({"--output": output}, model)
    from budgetjax.exporting import export_model as exporting

    found = reading.open_model(model).value
    exporting.export(output, found)
    dtype = exporting.predictor(found).row_dtype
    click.echo(f"exported: {output}, of rows in {dtype}")
