"""Parts of pipelines that make pictures or videos: text encoder, denoiser for one step, ControlNet, and the decoder.

The catalog's pipelines (`known/data/models/pipelines.toml`) are made of such parts and of its own denoisers.
"""

from functools import partial

import transformers as hf
from diffusers import (
    AutoencoderDC,
    AutoencoderKL,
    AutoencoderKLCogVideoX,
    AutoencoderKLWan,
    CogVideoXTransformer3DModel,
    ControlNetModel,
    HunyuanDiT2DModel,
    PixArtTransformer2DModel,
    SanaTransformer2DModel,
    UNet2DConditionModel,
    WanTransformer3DModel,
)
from torch import nn

from workshop.networks.nets.net import Net
from workshop.networks.nets.packaged import Tensors, ids


class Step(nn.Module):
    def __init__(self, unet, control=False):
        super().__init__()
        self.unet, self.control = unet, control

    def forward(self, latents, time, words, *residuals):
        extra = {}
        if self.control:
            extra = {"down_block_additional_residuals": residuals[:-1], "mid_block_additional_residual": residuals[-1]}
        return self.unet(latents, time, encoder_hidden_states=words, return_dict=False, **extra)[0]


class Control(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, latents, time, words, edges):
        return self.net(latents, time, encoder_hidden_states=words, controlnet_cond=edges, return_dict=False)


class Vae(nn.Module):
    def __init__(self, channels=4, post=True):
        super().__init__()
        vae = AutoencoderKL(
            block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=channels, sample_size=512,
            down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
            use_post_quant_conv=post,
        )  # fmt: skip
        self.decoder, self.post = vae.decoder, vae.post_quant_conv

    def forward(self, latents):
        return self.decoder(latents if self.post is None else self.post(latents))


def _sana_vae():
    types = ("ResBlock",) * 3 + ("EfficientViTBlock",) * 3
    return AutoencoderDC(
        decoder_block_types=types, encoder_block_types=types, upsample_block_type="interpolate",
        encoder_layers_per_block=(2, 2, 2, 3, 3, 3), downsample_block_type="Conv",
    ).decoder  # fmt: skip


def _pixart():
    return Tensors(
        PixArtTransformer2DModel(caption_channels=4096, interpolation_scale=2, use_additional_conditions=False),
        ("hidden_states", "timestep", "encoder_hidden_states"), lambda a: a[0],
        added_cond_kwargs={"resolution": None, "aspect_ratio": None}, return_dict=False,
    )  # fmt: skip


def _sana(**sizes):
    return Tensors(
        SanaTransformer2DModel(**sizes),
        ("hidden_states", "encoder_hidden_states", "timestep"), lambda a: a[0], return_dict=False,
    )  # fmt: skip


class Frames(nn.Module):
    """The decoder of a video: it makes some frames at a time, and keeps what the next convolutions look back at."""

    def __init__(self, vae):
        super().__init__()
        self.vae = vae
        vae.encoder = vae.quant_conv = None
        for module in vae.decoder.modules():  # CogVideoX's convolutions take large inputs in parts
            if type(module).__name__ == "CogVideoXSafeConv3d":
                module.forward = partial(nn.Conv3d.forward, module)

    def forward(self, latents):
        return self.vae._decode(latents, return_dict=False)[0]  # noqa: SLF001 - `decode` may share out a batch


def _wan(heads, layers, ffn):
    return lambda: Tensors(
        WanTransformer3DModel(num_attention_heads=heads, num_layers=layers, ffn_dim=ffn),
        ("hidden_states", "timestep", "encoder_hidden_states"), lambda a: a[0], return_dict=False,
    )  # fmt: skip


class Turning(nn.Module):
    """CogVideoX with tables of positions that are made once a video, not at each step."""

    def __init__(self, rows, **sizes):
        super().__init__()
        self.net, self.rows = CogVideoXTransformer3DModel(**sizes), rows

    def forward(self, latents, words, time):
        turns = (latents.new_empty(self.rows, 64), latents.new_empty(self.rows, 64)) if self.rows else None
        return self.net(latents, words, time, image_rotary_emb=turns, return_dict=False)[0]


class Hunyuan(nn.Module):
    """Hunyuan-DiT with its table of positions, which is made once a picture, and with no padding in its texts."""

    def __init__(self):
        super().__init__()
        self.net = HunyuanDiT2DModel(
            in_channels=4, patch_size=2, sample_size=128, hidden_size=1408, num_layers=40, mlp_ratio=4.3637,
            use_style_cond_and_image_meta_size=False,
        )  # fmt: skip

    def forward(self, latents, time, words, sentences):
        rows = latents.shape[2] // 2 * (latents.shape[3] // 2)
        turns = latents.new_empty(rows, 88), latents.new_empty(rows, 88)
        told = (latents.new_ones(each.shape[:2]) for each in (words, sentences))
        return self.net(
            latents, time, encoder_hidden_states=words, text_embedding_mask=next(told),
            encoder_hidden_states_t5=sentences, text_embedding_mask_t5=next(told), image_rotary_emb=turns,
            return_dict=False,
        )[0]  # fmt: skip


def _unet(text, heads, linear):
    return UNet2DConditionModel(
        sample_size=64, cross_attention_dim=text, attention_head_dim=heads, use_linear_projection=linear
    )


def _clip(width, layers, heads, act):
    return lambda: Tensors(
        hf.CLIPTextModel(
            hf.CLIPTextConfig(
                hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
                hidden_act=act,
            )
        ),
        ("input_ids",), lambda a: a.last_hidden_state,
    )  # fmt: skip


def nets():
    time = (1,)
    first = ((1, 4, 64, 64), time, (1, 77, 768))
    second = ((1, 4, 64, 64), time, (1, 77, 1024))
    return {
        "stable-diffusion-v1-5/text_encoder": Net(make=_clip(768, 12, 12, "quick_gelu"), inputs=ids(77)),
        "stable-diffusion-v1-5/unet": Net(
            make=lambda: Step(_unet(768, 8, False)), inputs=first, fixed=True, published="859.5M"
        ),
        "stable-diffusion-v1-5/vae": Net(make=Vae, inputs=((1, 4, 64, 64),), fixed=True),
        "stable-diffusion-v2-1/text_encoder": Net(make=_clip(1024, 23, 16, "gelu"), inputs=ids(77)),
        "stable-diffusion-v2-1/unet": Net(
            make=lambda: Step(_unet(1024, [5, 10, 20, 20], True)), inputs=second, fixed=True, published="865.9M"
        ),
        # Of these the image is a latent: a pipeline says how many pixels one is.
        "sd-vae/decoder": Net(make=Vae, inputs=((1, 4, 64, 64),), step=1, published="49.49M"),
        "flux-vae/decoder": Net(make=lambda: Vae(16, post=False), inputs=((1, 16, 128, 128),), step=1),
        "pixart-sigma/transformer": Net(
            make=_pixart, inputs=((1, 4, 128, 128), time, (1, 300, 4096)), step=2, published="0.6B"
        ),
        "sana-1.6b/transformer": Net(
            make=_sana, inputs=((1, 32, 32, 32), (1, 300, 2304), time), step=1, published="1.6B"
        ),
        "sana/decoder": Net(make=_sana_vae, inputs=((1, 32, 32, 32),), step=1),
        "sana-4.8b/transformer": Net(
            make=lambda: _sana(num_layers=60), inputs=((1, 32, 32, 32), (1, 300, 2304), time), step=1, published="4.7B"
        ),
        "hunyuan-dit/transformer": Net(
            make=Hunyuan, inputs=((1, 4, 128, 128), time, (1, 77, 1024), (1, 256, 2048)), step=2, published="1.5B"
        ),
        # Videos at the frames and sides that their cards give: 81 of 832 × 480; 49, and 81 of 1360 × 768.
        "wan2.1-1.3b/transformer": Net(
            make=_wan(12, 30, 8960), inputs=((1, 16, 21, 60, 104), time, (1, 512, 4096)), published="1.42B"
        ),
        "wan2.1-14b/transformer": Net(
            make=_wan(40, 40, 13824), inputs=((1, 16, 21, 60, 104), time, (1, 512, 4096)), published="14.3B"
        ),
        "wan2.1-vae/decoder": Net(make=lambda: Frames(AutoencoderKLWan()), inputs=((1, 16, 21, 60, 104),)),
        "cogvideox-2b/transformer": Net(
            make=lambda: Turning(0), inputs=((1, 13, 16, 60, 90), (1, 226, 4096), time), published="1.69B"
        ),
        "cogvideox-5b/transformer": Net(
            make=lambda: Turning(
                13 * 30 * 45, num_attention_heads=48, num_layers=42, use_rotary_positional_embeddings=True
            ),
            inputs=((1, 13, 16, 60, 90), (1, 226, 4096), time), published="5.57B",
        ),
        "cogvideox1.5-5b/transformer": Net(
            make=lambda: Turning(
                11 * 48 * 85, num_attention_heads=48, num_layers=42, use_rotary_positional_embeddings=True,
                patch_size_t=2, sample_width=170, sample_height=96, sample_frames=81, patch_bias=False,
            ),
            inputs=((1, 22, 16, 96, 170), (1, 226, 4096), time), published="5.57B",
        ),
        "cogvideox-vae/decoder": Net(
            make=lambda: Frames(AutoencoderKLCogVideoX()), inputs=((1, 16, 13, 60, 90),)
        ),
        "cogvideox1.5-vae/decoder": Net(
            make=lambda: Frames(AutoencoderKLCogVideoX()), inputs=((1, 16, 21, 96, 170),)
        ),
        "controlnet-canny/controlnet": Net(
            make=lambda: Control(ControlNetModel(cross_attention_dim=768, attention_head_dim=8)),
            inputs=(*first, (1, 3, 512, 512)), fixed=True, published="361M",
        ),
    }  # fmt: skip
