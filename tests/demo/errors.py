"""The error that stops the demo."""


class DemoError(Exception):
    """A failure as one sentence; `exit_status` 2 means that the machine lacks a requirement."""

    def __init__(self, sentence: str, exit_status: int = 1) -> None:
        super().__init__(sentence)
        self.exit_status = exit_status
