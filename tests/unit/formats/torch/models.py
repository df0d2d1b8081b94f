"""Models written with torch.nn, in published sizes and in small ones. Importing this needs torch."""

import torch  # noqa: TID251 - these modules are what the edge is tested with
from torch import nn  # noqa: TID251
from torch.nn import functional  # noqa: TID251


class Mlp(nn.Module):
    """A stack of equal layers and a head. `scale` is a buffer that every layer uses."""

    def __init__(self, width=784, hidden=512, layers=3, classes=10):
        super().__init__()
        self.inlet = nn.Linear(width, hidden)
        self.layers = nn.ModuleList(MlpLayer(hidden) for _ in range(layers))
        self.head = nn.Linear(hidden, classes)
        self.register_buffer("scale", torch.ones(hidden))

    def forward(self, x):
        x = self.inlet(x)
        for layer in self.layers:
            x = layer(x, self.scale)
        return self.head(x)


class MlpLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.activation = nn.ReLU()

    def forward(self, x, scale):
        return x + self.activation(self.linear(x)) * scale


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """ResNet-50 as He et al. have it, with the stride in the 3×3 convolution (v1.5)."""

    def __init__(self, depths=(3, 4, 6, 3), width=64, classes=1000):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)
        inputs = width
        for stage, depth in enumerate(depths):
            inner = width * 2**stage
            blocks = []
            for place in range(depth):
                blocks.append(Bottleneck(inputs, inner, stride=2 if stage and not place else 1))
                inputs = 4 * inner
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for name in ("layer1", "layer2", "layer3", "layer4"):
            if hasattr(self, name):
                x = getattr(self, name)(x)
        return self.fc(self.avgpool(x).flatten(1))


class Inverted(nn.Module):
    """MobileNetV2's block: widen, filter each channel on its own, narrow."""

    def __init__(self, inputs, outputs, stride, widen):
        super().__init__()
        inner = inputs * widen
        self.residual = stride == 1 and inputs == outputs
        layers = [] if widen == 1 else [_mobile(inputs, inner, 1)]
        layers += [_mobile(inner, inner, 3, stride=stride, groups=inner)]
        layers += [nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.residual else self.conv(x)


def _mobile(inputs, outputs, kernel, stride=1, groups=1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


class MobileNetV2(nn.Module):
    SETTING = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self, classes=1000):
        super().__init__()
        layers, inputs = [_mobile(3, 32, 3, stride=2)], 32
        for widen, outputs, depth, stride in self.SETTING:
            for place in range(depth):
                layers.append(Inverted(inputs, outputs, 1 if place else stride, widen))
                inputs = outputs
        self.features = nn.Sequential(*layers, _mobile(inputs, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean([2, 3]))


class VisionTransformer(nn.Module):
    """ViT-B/16, its encoder from torch.nn."""

    def __init__(self, *, image=224, patch=16, width=768, layers=12, heads=12, classes=1000):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embedding = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embedding
        return self.head(self.encoder(x)[:, 0])


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        split = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in split)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.proj(functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2: tied embeddings, learned positions, causal attention."""

    def __init__(self, vocabulary=50257, positions=1024, width=768, layers=12, heads=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Mixed(nn.Module):
    """What a plain stack of layers does not have: a branch, cells, a cache that is written to, constants."""

    def __init__(self, width=8):
        super().__init__()
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, 4)
        self.register_buffer("cache", torch.zeros(2, 6, 2 * width))

    def forward(self, x, flag):
        x, _ = self.lstm(x)
        self.cache[:, 1:2] = x[:, :1]
        y = torch.cond(flag.sum() > 0, self.head, lambda z: self.head(z) * 2.0, (x,))
        seen = torch.einsum("bij,bkj->bik", x, self.cache)
        return y, seen, torch.clamp(x, max=float("inf")) + torch.tensor([1.0, 2.0] * x.shape[2])[: x.shape[2]]


def small_gpt():
    return Gpt(vocabulary=32, positions=16, width=8, layers=3, heads=2)


def small_resnet():
    return ResNet(depths=(2,), width=4, classes=3)


def small_encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
