"""A module on the meta device: one run of it says what torch.export does, and the batch is left open."""

import pytest

from inferometer.core.dims import Symbol

BATCH = Symbol("batch")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed: modules are not traced")


@pytest.fixture(scope="module")
def module(torch):
    class Small(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
            self.scale = torch.nn.Parameter(torch.ones(4, 1, 1))
            self.head = torch.nn.Linear(4, 5)

        def forward(self, image):
            windows = image.reshape(-1, 4, 4, 4)  # four times the batch
            for layer in self.layers:
                windows = torch.nn.functional.relu_(layer(windows)) * self.scale
            return self.head(windows.reshape(image.shape[0], 4, -1).mean(-1))

    with torch.device("meta"):
        return Small().eval()


def test_one_run_finds_what_torch_export_finds(torch, module):
    from inferometer.formats.torch.pretrained import read_module
    from workshop.networks.recording import recorded

    image = (torch.empty(10007, 4, 8, 8, device="meta"),)
    ran, exported = recorded(module, image, name="small"), read_module(module, image, name="small")
    assert (ran.blocks, ran.outputs, ran.precision) == (exported.blocks, exported.outputs, exported.precision)


def test_the_batch_is_open_also_where_it_is_multiplied(torch, module):
    from inferometer.formats.networks.read import MARK, traced
    from workshop.networks.recording import recorded

    graph = traced(module, (torch.empty(MARK, 4, 8, 8, device="meta"),), name="small", trace=recorded)
    convolution = next(op for _, op in graph.ops() if op.kind == "convolution")
    assert (graph.inputs[0].shape, graph.metadata) == ((BATCH, 4, 8, 8), {})
    assert convolution.inputs[0].shape == (BATCH * 4, 4, 4, 4)
    assert convolution.weights[0].dtype is None  # the workload decides
    assert graph.symbols == {"batch"}


def test_a_kernel_for_each_image_is_counted_for_each_image(torch):
    """CondConv puts the batch among the channels: a thousand images are a thousand times the work."""
    from inferometer.core.sizes import bind
    from inferometer.core.workload import Workload
    from inferometer.formats.networks.read import MARK, traced
    from inferometer.predict.work.count import graph_work
    from workshop.networks.recording import recorded

    class PerImage(torch.nn.Module):
        def forward(self, image, kernels):
            batch, width, height, across = image.shape
            rows = image.reshape(1, batch * width, height, across)
            return torch.nn.functional.conv2d(rows, kernels.reshape(batch * 6, width, 3, 3), groups=batch)

    given = (torch.empty(MARK, 4, 8, 8, device="meta"), torch.empty(MARK, 6 * 4 * 9, device="meta"))
    graph = traced(PerImage().eval(), given, name="per-image", trace=recorded)
    flops = [graph_work(graph, bind(graph, Workload(batch=batch))).total_flops for batch in (1, 1000)]
    assert flops == [2 * 6 * 36 * 4 * 9, 2000 * 6 * 36 * 4 * 9]
