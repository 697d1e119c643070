"""The models that exports are tried with. FULL: architectures at their real width and depth, on small images. SMALL:
the same kinds in a few thousand parameters, for curves that are compared step by step. torchvision's models where it
has them."""
from functools import partial
from typing import Callable, NamedTuple

import torch
import torch.nn.functional as F
import torchvision.models as tv
from torch import nn
from torchvision.models import densenet, efficientnet, mobilenetv3, resnet

import toy


class Case(NamedTuple):
    build: Callable  # -> the module
    data: Callable  # samples -> the dataset's columns, labels last
    loss: str = "cross_entropy"
    lr: float = 0.05
    has_batch_norm: bool = False
    frozen_rows: dict = {}  # what padding_idx leaves alone, for the spec


class LeNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))


class VGG(tv.VGG):
    """VGG-11 whose classifier is as wide as 64 x 64 pixels leave it."""

    def __init__(self):
        super().__init__(tv.vgg11().features, num_classes=10)
        self.avgpool = nn.Identity()
        self.classifier[0] = nn.Linear(512 * 2 * 2, 4096)


class SmallResNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        shortcut = nn.Sequential(nn.Conv2d(width, 2 * width, 1, 2, bias=False), nn.BatchNorm2d(2 * width))
        self.blocks = nn.Sequential(resnet.BasicBlock(width, width),
                                    resnet.BasicBlock(width, 2 * width, 2, shortcut))
        self.head = nn.Linear(2 * width, 4)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class UNet(nn.Module):
    """One way up is a transposed convolution, the other an interpolation."""

    def __init__(self, width=32, classes=3):
        super().__init__()
        self.down1, self.down2 = self.block(3, width), self.block(width, 2 * width)
        self.bottom = self.block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.side2 = self.block(4 * width, 2 * width)
        self.up1 = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
                                 nn.Conv2d(2 * width, width, 1))
        self.side1 = self.block(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def block(into, out):
        return nn.Sequential(nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
                             nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU())

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        x = self.bottom(F.max_pool2d(two, 2))
        x = self.side2(torch.cat([self.up2(x), two], 1))
        return self.head(self.side1(torch.cat([self.up1(x), one], 1)))


class StandardConv2d(nn.Conv2d):
    """A convolution whose filters are standardised, as NFNets and BiT have it: batch norm without running
    statistics."""

    def __init__(self, into, out, *options):
        super().__init__(into, out, *options, padding=1)
        self.gain = nn.Parameter(torch.ones(out, 1, 1, 1))

    def forward(self, x):
        weight = F.batch_norm(self.weight.reshape(1, self.out_channels, -1), None, None,
                              weight=(self.gain * self.weight[0].numel() ** -0.5).view(-1), training=True, momentum=0.0,
                              eps=1e-6).reshape_as(self.weight)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


class StandardNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(StandardConv2d(3, width, 3, 2), nn.SiLU(), StandardConv2d(width, 2 * width, 3, 2),
                                    nn.SiLU())
        self.head = nn.Linear(2 * width, 4)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))


class FoldNet(nn.Module):
    """Overlapping patches that are mixed and folded back to an image, as MobileViT has it."""

    def __init__(self, width, size):
        super().__init__()
        self.stem, self.mix = nn.Conv2d(3, width, 3, padding=1), nn.Linear(9 * width, 9 * width)
        self.patches, self.size = {"kernel_size": 3, "stride": 2, "padding": 1}, size
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = F.unfold(torch.tanh(self.stem(x)), **self.patches)
        x = torch.tanh(self.mix(x.transpose(1, 2))).transpose(1, 2)
        return self.head(F.fold(x, self.size, **self.patches).square().mean((2, 3)))


class Covariance(nn.Module):
    """XCiT's attention between channels, whose normalisation the older exporter writes with constants of f64."""

    def __init__(self, width, heads, patch):
        super().__init__()
        self.heads = heads
        self.stem, self.norm = nn.Conv2d(3, width, patch, patch), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 4, 1)
        q, k, v = qkv.unbind(0)
        weights = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * self.temperature).softmax(dim=-1)
        x = x + self.projection((weights @ v).permute(0, 3, 1, 2).reshape(batch, length, width))
        q, k, v = qkv.transpose(-2, -1).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        return self.head((x + y).mean(1))


class Padded(nn.Module):
    def __init__(self, vocabulary, width, classes):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, width, padding_idx=0), nn.Linear(6 * width, classes)

    def forward(self, tokens):
        return self.head(torch.tanh(self.embed(tokens)).flatten(1))


class Bags(nn.Module):
    def __init__(self, vocabulary, width, classes):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(vocabulary, width, mode=mode) for mode in ("sum", "mean", "max"))
        self.head = nn.Linear(3 * width, classes)

    def forward(self, tokens):
        return self.head(torch.tanh(torch.cat([bag(tokens) for bag in self.bags], 1)))


class Windows(nn.Sequential):
    """Convolutions of 3x3 and of 5x5, of so many channels that a CPU takes Winograd's algorithm for them."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 32, 3, padding=1), nn.Tanh(), nn.Conv2d(32, 64, 5, padding=2), nn.Tanh(),
            nn.Conv2d(64, 64, 3, padding=1), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 4))


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix_tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.mix_channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.mix_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mix_channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, width, patch, size, depth):
        super().__init__()
        self.stem = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.Sequential(*[MixerBlock((size // patch) ** 2, width) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class GPTBlock(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.p = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def attend(self, x):
        batch, length, width = x.shape
        parts = [part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                 for part in self.qkv(x).split(width, dim=2)]
        y = F.scaled_dot_product_attention(*parts, dropout_p=self.p if self.training else 0.0, is_causal=True)
        return self.projection(y.transpose(1, 2).contiguous().view(batch, length, width))

    def forward(self, x):
        x = x + self.dropout(self.attend(self.norm1(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class GPT(nn.Module):
    """GPT-2's decoder: a causal mask, and an output layer tied to the token embedding."""

    def __init__(self, vocabulary, length, width, heads, depth, dropout=0.0):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*[GPTBlock(width, heads, dropout) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for embedding in (self.tokens, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(self.dropout(x))))


class Bert(nn.Module):
    """An encoder that classifies; padding is masked."""

    def __init__(self, vocabulary, length, width, heads, depth, dropout=0.0):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.segments, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.pool, self.head = nn.Linear(width, width), nn.Linear(width, 5)

    def forward(self, tokens, segments, mask):
        x = self.tokens(tokens) + self.segments(segments) + self.places(torch.arange(tokens.shape[1]))
        x = self.encoder(self.norm(x), src_key_padding_mask=mask == 0)
        return self.head(torch.tanh(self.pool(x[:, 0])))


class Translator(nn.Module):
    """An encoder and a decoder. tgt_is_causal is said because the newer exporter cannot follow PyTorch's look at the
    mask's values."""

    def __init__(self, vocabulary, length, width, heads, depth, dropout=0.0):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(1, length, width) * 0.1)
        self.body = nn.Transformer(width, heads, depth, depth, 2 * width, dropout, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=self.places.dtype)
        x = self.body(self.source(source) + self.places, self.target(target) + self.places, tgt_mask=mask,
                      tgt_is_causal=True)
        return self.head(x)


class Recurrent(nn.Module):
    def __init__(self, kind, vocabulary, width, hidden, **options):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.body = kind(width, hidden, batch_first=True, **options)
        self.head = nn.Linear(hidden * (2 if options.get("bidirectional") else 1), 4)

    def forward(self, tokens):
        return self.head(self.body(self.tokens(tokens))[0][:, -1])


class DLRM(nn.Module):
    """A recommender: embeddings of categories and an MLP of marks, multiplied pairwise."""

    def __init__(self, dense, tables, width):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(rows, width) for rows in tables])
        for table, rows in zip(self.tables, tables):
            nn.init.uniform_(table.weight, -rows**-0.5, rows**-0.5)
        self.bottom = nn.Sequential(nn.Linear(dense, 4 * width), nn.ReLU(), nn.Linear(4 * width, width), nn.ReLU())
        vectors = len(tables) + 1
        self.top = nn.Sequential(nn.Linear(width + vectors * (vectors - 1) // 2, 4 * width), nn.ReLU(),
                                 nn.Linear(4 * width, 1))
        rows, columns = torch.tril_indices(vectors, vectors, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        vectors = torch.stack([x] + [table(sparse[:, i]) for i, table in enumerate(self.tables)], 1)
        pairs = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([x, pairs], 1)).squeeze(1)


class AutoEncoder(nn.Module):
    def __init__(self, width=8, size=28):
        super().__init__()
        inner = (2 * width, size // 4, size // 4)
        flat = inner[0] * inner[1] * inner[2]
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ELU(),
            nn.Flatten(), nn.Linear(flat, 16))
        self.decoder = nn.Sequential(
            nn.Linear(16, flat), nn.Softplus(), nn.Unflatten(1, inner),
            nn.ConvTranspose2d(2 * width, width, 3, 2, 1, output_padding=1), nn.PReLU(),
            nn.ConvTranspose2d(width, 1, 3, 2, 1, output_padding=1), nn.Sigmoid())

    def forward(self, x):
        return self.decoder(self.encoder(x))


def small_mobilenet_v2():
    """[expansion, width, blocks, stride] of each stage."""
    return tv.MobileNetV2(4, 0.25, [[1, 32, 1, 1], [6, 32, 2, 2]], dropout=0.0)


def small_mobilenet_v3():
    block = partial(mobilenetv3.InvertedResidualConfig, dilation=1, width_mult=1.0)
    return mobilenetv3.MobileNetV3([block(8, 3, 8, 8, True, "RE", 2), block(8, 5, 24, 8, True, "HS", 1)], 16, 4,
                                   dropout=0.0)


def small_efficientnet():
    stage = partial(efficientnet.MBConvConfig, input_channels=8, out_channels=8, width_mult=1.0, depth_mult=1.0)
    stages = [stage(expand_ratio=1, kernel=3, stride=1, num_layers=1),
              stage(expand_ratio=4, kernel=5, stride=2, num_layers=2)]
    return efficientnet.EfficientNet(stages, dropout=0.0, stochastic_depth_prob=0.0, num_classes=4, last_channel=16)


small_texts = partial(toy.texts, length=32, vocabulary=32, classes=4)
photos = partial(toy.images, channels=3, size=64, classes=4)
thumbnails = partial(toy.images, channels=3, size=16, classes=4)
TABLES = (50, 30, 20)

FULL = {
    "lenet": Case(LeNet, partial(toy.images, channels=1, size=28, classes=10)),
    "vgg11": Case(VGG, photos, lr=0.01),
    "resnet18": Case(partial(tv.resnet18, num_classes=10), photos, lr=0.01, has_batch_norm=True),
    "resnet50": Case(partial(tv.resnet50, num_classes=10), photos, lr=0.01, has_batch_norm=True),
    "densenet121": Case(partial(tv.densenet121, num_classes=10), photos, lr=0.01, has_batch_norm=True),
    "mobilenet_v2": Case(partial(tv.mobilenet_v2, num_classes=10), photos, lr=0.01, has_batch_norm=True),
    "mobilenet_v3_small": Case(partial(tv.mobilenet_v3_small, num_classes=10), photos, lr=0.01, has_batch_norm=True),
    "efficientnet_b0": Case(partial(tv.efficientnet_b0, num_classes=10), photos, lr=0.01, has_batch_norm=True),
    "squeezenet": Case(partial(tv.squeezenet1_1, num_classes=4), photos, lr=0.003),
    "unet": Case(UNet, partial(toy.segments, size=32, classes=3), has_batch_norm=True),
    "mixer": Case(partial(Mixer, 128, 4, 32, 8), partial(toy.images, channels=3, size=32, classes=10), lr=0.02),
    "vit": Case(partial(tv.VisionTransformer, 64, 16, 6, 6, 192, 768, num_classes=10), photos, lr=0.01),
    "gpt": Case(partial(GPT, 512, 64, 192, 6, 6, 0.1), partial(toy.next_tokens, length=64, vocabulary=512)),
    "bert": Case(partial(Bert, 512, 64, 128, 4, 4, 0.1),
                 partial(toy.padded_texts, length=64, vocabulary=20, classes=5), lr=0.01),
    "translator": Case(partial(Translator, 256, 32, 128, 4, 3, 0.1),
                       partial(toy.translations, length=32, vocabulary=256)),
    "lstm": Case(partial(Recurrent, nn.LSTM, 32, 64, 128), small_texts, lr=0.3),
    "lstm_bidirectional": Case(partial(Recurrent, nn.LSTM, 32, 64, 128, num_layers=2, bidirectional=True),
                               small_texts, lr=0.3),
    "gru": Case(partial(Recurrent, nn.GRU, 32, 64, 128), small_texts, lr=0.3),
    "dlrm": Case(partial(DLRM, 13, (1000, 500, 200, 100), 16),
                 partial(toy.clicks, dense=13, tables=(1000, 500, 200, 100)), loss="bce_with_logits", lr=0.1),
    "autoencoder": Case(partial(AutoEncoder, 32), partial(toy.shapes, size=28), loss="mse", lr=1.0),
}

SMALL = {
    "resnet": Case(SmallResNet, thumbnails, has_batch_norm=True),
    "mobilenet_v2": Case(small_mobilenet_v2, thumbnails, lr=0.005, has_batch_norm=True),
    "mobilenet_v3": Case(small_mobilenet_v3, thumbnails, has_batch_norm=True),
    "efficientnet": Case(small_efficientnet, thumbnails, has_batch_norm=True),
    "densenet": Case(partial(densenet.DenseNet, 4, (2, 2), 8, 2, num_classes=4),
                     partial(toy.images, channels=3, size=32, classes=4), lr=0.02, has_batch_norm=True),
    "unet": Case(partial(UNet, 4), partial(toy.segments, size=16, classes=3), has_batch_norm=True),
    "autoencoder": Case(partial(AutoEncoder, 4, 12), partial(toy.shapes, size=12), loss="mse", lr=2.0),
    "mixer": Case(partial(Mixer, 16, 4, 16, 2), thumbnails, lr=0.02),
    "vit": Case(partial(tv.VisionTransformer, 16, 4, 2, 2, 16, 32, num_classes=4), thumbnails, lr=0.01),
    "gpt": Case(partial(GPT, 32, 8, 16, 2, 2), partial(toy.next_tokens, length=8, vocabulary=32), lr=0.1),
    "bert": Case(partial(Bert, 32, 12, 16, 2, 1),
                 partial(toy.padded_texts, length=12, vocabulary=32, classes=5)),
    "translator": Case(partial(Translator, 32, 8, 16, 2, 1), partial(toy.translations, length=8, vocabulary=32)),
    "lstm": Case(partial(Recurrent, nn.LSTM, 16, 8, 12, num_layers=2, bidirectional=True),
                 partial(toy.texts, length=8, vocabulary=16, classes=4), lr=0.5),
    "gru": Case(partial(Recurrent, nn.GRU, 16, 8, 12), partial(toy.texts, length=8, vocabulary=16, classes=4), lr=0.2),
    "dlrm": Case(partial(DLRM, 5, TABLES, 4), partial(toy.clicks, dense=5, tables=TABLES), loss="bce_with_logits",
                 lr=0.3),
    "standardised": Case(partial(StandardNet, 8), thumbnails),
    "folded": Case(partial(FoldNet, 4, 16), thumbnails, lr=0.1),
    "covariance": Case(partial(Covariance, 16, 2, 4), thumbnails, lr=0.02),
    "padded": Case(partial(Padded, 8, 6, 4), partial(toy.texts, length=6, vocabulary=8, classes=4), lr=0.2,
                   frozen_rows={"embed.weight": [0]}),
    "bags": Case(partial(Bags, 16, 6, 4), partial(toy.texts, length=6, vocabulary=16, classes=4), lr=0.2),
}

# Of which there are no golden vectors.
WIDER = {"windows": Case(Windows, thumbnails)}
