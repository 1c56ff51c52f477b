"""A warning about methods that draft from the texts of other requests."""

from specdec.api.model import SpeculativeModel


def warnings(model: SpeculativeModel) -> tuple[str, ...]:
    """One part of a sentence if requests share their texts; else none."""
    speculation = model.spec.speculation
    field = speculation.block.shared_texts_field
    if not field:
        return ()
    name = speculation.block_name(speculation.method)
    return (
        f"speculation.{name}.{field} is true, so draft tokens come from the texts of other "
        "requests too: set it to false where several tenants use the service",
    )
