"""Pictures of a pool at work, yours or ours, and the widgets built on them.

`record` follows a pool and its sequences, `draw` shows one moment as a still picture.
"""

from paged_kv.widgets.history import History
from paged_kv.widgets.page import Picture
from paged_kv.widgets.record import Recording, record
from paged_kv.widgets.render import draw

__all__ = ["History", "Picture", "Recording", "draw", "record"]
