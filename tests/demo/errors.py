"""What stops the demo."""


class DemoError(Exception):
    """One sentence for the user; `exit_status` 2: the machine lacks something."""

    def __init__(self, sentence: str, exit_status: int = 1) -> None:
        super().__init__(sentence)
        self.exit_status = exit_status
