"""Pictures of a pool at work, yours or ours, and the widgets built on them.

`record` follows a pool and its sequences, `draw` shows one moment as a still picture,
`BlockExplorer` the whole run under a slider; `Playground` makes a run by hand;
`compare` puts the first wrong step of an exercise beside the right one.
"""

from paged_kv.widgets.calculator import KVCalculator
from paged_kv.widgets.compare import compare
from paged_kv.widgets.explorer import BlockExplorer
from paged_kv.widgets.fragmentation import FragmentationView
from paged_kv.widgets.history import History
from paged_kv.widgets.page import Picture
from paged_kv.widgets.playground import Playground
from paged_kv.widgets.record import Recording, record
from paged_kv.widgets.render import draw
from paged_kv.widgets.softmax import SoftmaxStepper

__all__ = [
    "BlockExplorer",
    "FragmentationView",
    "History",
    "KVCalculator",
    "Picture",
    "Playground",
    "Recording",
    "SoftmaxStepper",
    "compare",
    "draw",
    "record",
]
