"""The KV memory calculator: what a cache costs, and what that makes of throughput."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

import ipywidgets as widgets

from paged_kv.messages import tr
from paged_kv.serving.report import number
from paged_kv.spec import GB, PRESETS, KVCacheSpec
from paged_kv.widgets.calculator_plan import Plan
from paged_kv.widgets.calculator_view import SHEET, body, plain
from paged_kv.widgets.page import Picture, page, title
from paged_kv.widgets.stored import LABELLED, StoredWidget

#: Name → bytes of memory, bytes/s of bandwidth; from NVIDIA's data sheets.
DEVICES = {
    "H100 SXM": (80 * GB, 3.35e12),
    "H100 PCIe": (80 * GB, 2.0e12),
    "A100 80GB": (80 * GB, 2.0e12),
    "H200": (141 * GB, 4.8e12),
}
_DTYPES = ("float32", "float16", "bfloat16", "int8", "float8_e4m3fn")
_LENGTHS = [2**n for n in range(7, 18)]  # 128 … 131072
_MOST = 512
_OWN = "own"


class KVCalculator(StoredWidget):
    """Choose model, device and load; see memory, capacity and throughput.

    Parameters
    ----------
    model : str or KVCacheSpec
        A name that `KVCacheSpec.preset` knows, or own numbers.
    device : str
        One of `DEVICES`.
    context, max_len, batch : int
        As in `Plan`.
    memory, bandwidth : float, optional
        Bytes and bytes/s, in place of the device's.
    other : float
        Bytes that neither weights nor cache take.

    Raises
    ------
    ValueError
        For an unknown model or device, or numbers that `Plan` refuses.

    Notes
    -----
    The weights stay as the model publishes them when the cache is stored in fewer bits.
    """

    def __init__(
        self,
        model: str | KVCacheSpec = "llama-3-8b",
        device: str = "H100 SXM",
        context: int = 4096,
        max_len: int = 32768,
        batch: int = 32,
        *,
        memory: float | None = None,
        bandwidth: float | None = None,
        other: float = 4 * GB,
    ) -> None:
        spec = KVCacheSpec.preset(model) if isinstance(model, str) else model
        if device not in DEVICES:
            raise ValueError(f"unknown device {device!r}; known: {', '.join(DEVICES)}")
        known_memory, known_bandwidth = DEVICES[device]
        plan = Plan(
            spec,
            spec.weight_bytes(),
            known_memory if memory is None else memory,
            known_bandwidth if bandwidth is None else bandwidth,
            other=other,
            context=context,
            max_len=max_len,
            batch=batch,
        )
        self._base = spec
        chosen = device if memory is None and bandwidth is None else _OWN
        rows = [*self._model_rows(plan), *self._device_rows(plan, chosen)]
        rows.append(self._load_row(plan))
        self._following = False
        self._view = widgets.HTML()
        head = widgets.HTML(title(self.name(), _lead()))
        super().__init__([head, *rows, self._view], SHEET)
        for row in rows:
            row.add_class("controls")
            for control in row.children:
                control.observe(self._changed, "value")
        self._draw()

    def name(self) -> str:
        """Return the title."""
        return tr("KV memory calculator")

    def plan(self) -> Plan:
        """Return what the controls say now."""
        return Plan(
            self._spec(),
            self.weights.value * GB,
            self.memory.value * GB,
            self.bandwidth.value * 1e12,
            other=self.other.value * GB,
            context=self.context.value,
            max_len=self.max_len.value,
            batch=self.batch.value,
        )

    def picture(self) -> Picture:
        """Return the still picture of what the controls say now."""
        plan, name = self.plan(), self.name()
        words = escape(self._words(plan))
        chosen = f'<p class="tx">{words}</p>'
        return Picture(
            lambda: page(title(name, _lead()) + chosen + body(plan), name, SHEET),
            lambda: plain(plan),
        )

    def _words(self, plan: Plan) -> str:
        """Return the choices as a sentence, since a still picture has no controls."""
        return tr(
            "{model}, cache in {dtype}; {memory} GB at {bandwidth} TB/s; requests of "
            "{context} tokens, at most {max_len}.",
            model=plan.spec.name,
            dtype=plan.spec.dtype,
            memory=number(plan.memory / GB),
            bandwidth=number(plan.bandwidth / 1e12, 2),
            context=number(plan.context),
            max_len=number(plan.max_len),
        )

    def _model_rows(self, plan: Plan) -> list[widgets.HBox]:
        spec = plan.spec
        known = next((n for n, s in PRESETS.items() if s == spec), _OWN)
        models = [(s.name, n) for n, s in PRESETS.items()]
        own = spec.name if known == _OWN and spec.name else tr("own numbers")
        self.model = _choice(tr("Model"), [*models, (own, _OWN)], known)
        types = [(name, name) for name in dict.fromkeys([*_DTYPES, spec.dtype])]
        self.dtype = _choice(tr("cache stored as"), types, spec.dtype)
        self.layers = _count(tr("layers"), spec.n_layers)
        self.heads = _count(tr("KV heads"), spec.n_kv_heads)
        self.head_dim = _count(tr("head size"), spec.head_dim)
        self.weights = _number(tr("weights, GB"), plan.weights / GB)
        self._own_model = widgets.HBox(
            [self.layers, self.heads, self.head_dim, self.weights]
        )
        return [widgets.HBox([self.model, self.dtype]), self._own_model]

    def _device_rows(self, plan: Plan, chosen: str) -> list[widgets.HBox]:
        devices = [
            (
                tr(
                    "{name}: {memory} GB, {bandwidth} TB/s",
                    name=name,
                    memory=number(memory / GB),
                    bandwidth=number(bandwidth / 1e12, 2),
                ),
                name,
            )
            for name, (memory, bandwidth) in DEVICES.items()
        ]
        options = [*devices, (tr("own numbers"), _OWN)]
        self.device = _choice(tr("Device"), options, chosen)
        self.memory = _number(tr("memory, GB"), plan.memory / GB, 0.001)
        rate = plan.bandwidth / 1e12
        self.bandwidth = _number(tr("bandwidth, TB/s"), rate, 0.001)
        self.other = _number(tr("taken by other things, GB"), plan.other / GB)
        self._own_device = widgets.HBox([self.memory, self.bandwidth])
        return [widgets.HBox([self.device, self.other]), self._own_device]

    def _load_row(self, plan: Plan) -> widgets.HBox:
        self.context = _length(tr("tokens, on average"), plan.context)
        self.max_len = _length(tr("at most"), plan.max_len)
        self.batch = widgets.IntSlider(
            plan.batch, 1, max(_MOST, plan.batch), description=tr("batch"),
            style=LABELLED,
        )  # fmt: skip
        return widgets.HBox([self.context, self.max_len, self.batch])

    def _spec(self) -> KVCacheSpec:
        if self.model.value != _OWN:
            return KVCacheSpec.preset(self.model.value, dtype=self.dtype.value)
        return replace(
            self._base,
            n_layers=self.layers.value,
            n_kv_heads=self.heads.value,
            n_heads=self.heads.value,
            head_dim=self.head_dim.value,
            dtype=self.dtype.value,
        )

    def _changed(self, change: Any) -> None:
        if self._following:
            return
        self._following = True
        try:
            self._follow(change.owner)
        finally:
            self._following = False
        self._draw()

    def _follow(self, owner: widgets.Widget) -> None:
        """Set what a choice entails, without drawing each of these changes."""
        if owner is self.model and owner.value != _OWN:
            spec = self._base = KVCacheSpec.preset(owner.value)
            self.dtype.value = spec.dtype
            self.layers.value, self.heads.value = spec.n_layers, spec.n_kv_heads
            self.head_dim.value = spec.head_dim
            self.weights.value = spec.weight_bytes() / GB
        elif owner is self.model:
            self._base = replace(self._base, name=tr("own numbers"))
        if owner is self.device and owner.value != _OWN:
            memory, bandwidth = DEVICES[owner.value]
            self.memory.value, self.bandwidth.value = memory / GB, bandwidth / 1e12
        # Nobody holds more than is allowed: the other length gives way.
        if owner is self.context and owner.value > self.max_len.value:
            self.max_len.value = owner.value
        if owner is self.max_len and owner.value < self.context.value:
            self.context.value = owner.value

    def _draw(self) -> None:
        # Own numbers are asked for only where they count.
        for row, choice in (
            (self._own_model, self.model),
            (self._own_device, self.device),
        ):
            row.layout.display = "flex" if choice.value == _OWN else "none"
        self._view.value = body(self.plan())


def _lead() -> str:
    return tr("What one token costs, how many requests fit, how fast they decode.")


def _choice(name: str, options: list[tuple[str, str]], value: str) -> widgets.Dropdown:
    return widgets.Dropdown(
        options=options, value=value, description=name, style=LABELLED
    )


def _count(name: str, value: int) -> widgets.BoundedIntText:
    return widgets.BoundedIntText(value, 1, 100_000, description=name, style=LABELLED)


def _number(name: str, value: float, least: float = 0) -> widgets.BoundedFloatText:
    return widgets.BoundedFloatText(
        value, min=least, max=1e6, description=name, style=LABELLED
    )


def _length(name: str, value: int) -> widgets.SelectionSlider:
    options = [(number(n), n) for n in sorted({*_LENGTHS, value})]
    return widgets.SelectionSlider(
        options=options, value=value, description=name, style=LABELLED
    )
