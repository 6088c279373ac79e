"""`budgetjax export`: exports a model for machines without this package."""

import click

from budgetjax.cli import reading, reports
from budgetjax.exporting import export_model


def export(model: str, output: str) -> None:
    """Writes a predictor of a model to a file."""
    reports.check_outputs({"--output": output}, model)
    value = reading.open_model(model).value
    export_model.export(output, value)
    dtype = export_model.predictor(value).row_dtype
    click.echo(f"exported: {output}, of rows in {dtype}")
