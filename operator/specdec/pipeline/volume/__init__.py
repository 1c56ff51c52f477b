"""The volume: its claim, its damage and recovery, and what Jobs may delete from it."""
