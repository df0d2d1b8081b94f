"""Networks that torchvision, transformers and diffusers have, with the dimensions of the measured checkpoints.

A config lists what differs from the package's default of that architecture, which are those of its first release.
"""

import torch
import torchvision
import transformers as hf
from torch import nn

from workshop.networks.nets.net import Net, image


class Tensors(nn.Module):
    """A module's tensors alone: `take` picks them from what it answers."""

    def __init__(self, module, names=(), take=None, **kwargs):
        super().__init__()
        self.module, self.names, self.take, self.kwargs = module, names, take, kwargs

    def forward(self, *inputs):
        if self.names:
            answer = self.module(**dict(zip(self.names, inputs, strict=True)), **self.kwargs)
        else:
            answer = self.module(*inputs, **self.kwargs)
        return self.take(answer) if self.take else answer


def _hf(model, config, *names, take, **kwargs):
    """A transformers model from its config class and what differs; plain matrix products for attention."""

    def make():
        made = config() if callable(config) else config
        for part in (
            made,
            *(getattr(made, name, None) for name in ("text_config", "vision_config", "backbone_config")),
        ):
            if part is not None:
                part._attn_implementation = "sdpa"  # noqa: SLF001 - the package has no other way for a part
        try:
            module = model(made)
        except ValueError:  # this one writes its attention out
            module = model(config() if callable(config) else config)
        return Tensors(module, names, take, **kwargs)

    return make


def ids(length):
    return (((1, length), "int64"),)


def _logits(answer):
    return answer.logits


def _hidden(answer):
    return answer.last_hidden_state


def video():
    found = {}
    for name, factory, count in (
        ("r2plus1d-18", torchvision.models.video.r2plus1d_18, "31.5M"),
        ("r3d-18", torchvision.models.video.r3d_18, "33.4M"),
        ("mc3-18", torchvision.models.video.mc3_18, "11.7M"),
        ("s3d", torchvision.models.video.s3d, None),
    ):
        found[name] = Net(
            make=factory, inputs=((1, 3, 16, *((224, 224) if name == "s3d" else (112, 112))),), published=count
        )
    found["videomae-base"] = Net(
        make=_hf(
            hf.VideoMAEForVideoClassification, lambda: hf.VideoMAEConfig(num_labels=400), "pixel_values", take=_logits
        ),
        inputs=((1, 16, 3, 224, 224),),
        published="87M",
    )
    found["vjepa2-vitl"] = Net(
        make=_hf(hf.VJEPA2Model, hf.VJEPA2Config, "pixel_values_videos", take=_hidden, skip_predictor=True),
        inputs=((1, 16, 3, 256, 256),),
    )
    return found


def _out(answer):
    return answer["out"]


def segmentation():
    found = {}
    models = torchvision.models.segmentation
    for name, factory, side, count in (
        ("fcn-resnet50", models.fcn_resnet50, 224, "33.0M"),
        ("fcn-resnet101", models.fcn_resnet101, 224, None),
        ("deeplabv3-resnet50", models.deeplabv3_resnet50, 520, "39.6M"),
        ("deeplabv3-resnet101", models.deeplabv3_resnet101, 520, "58.6M"),
        ("deeplabv3-mobilenet-v3-large", models.deeplabv3_mobilenet_v3_large, 520, "11.0M"),
        ("lraspp-mobilenet-v3-large", models.lraspp_mobilenet_v3_large, 520, "3.2M"),
    ):
        found[name] = Net(
            make=lambda f=factory: Tensors(f(weights=None, weights_backbone=None, num_classes=21), take=_out),
            inputs=image(side), step=32 if side == 224 else 8, published=count,
        )  # fmt: skip
    sizes = {
        "b0": ([32, 64, 160, 256], [2, 2, 2, 2], 256, "3.75M"),
        "b1": ([64, 128, 320, 512], [2, 2, 2, 2], 256, "13.7M"),
        "b2": ([64, 128, 320, 512], [3, 4, 6, 3], 768, "27.5M"),
        "b3": ([64, 128, 320, 512], [3, 4, 18, 3], 768, "47.3M"),
    }
    for size, (widths, depths, decoder, count) in sizes.items():
        found[f"segformer-{size}"] = Net(
            make=_hf(
                hf.SegformerForSemanticSegmentation,
                lambda w=widths, d=depths, h=decoder: hf.SegformerConfig(
                    hidden_sizes=w, depths=d, decoder_hidden_size=h, num_labels=150
                ),
                "pixel_values", take=_logits,
            ),
            inputs=image(512), published=count,
        )  # fmt: skip
    found["mask2former-swin-tiny"] = Net(
        make=_hf(
            hf.Mask2FormerForUniversalSegmentation, hf.Mask2FormerConfig, "pixel_values",
            take=lambda a: (a.class_queries_logits, a.masks_queries_logits),
        ),
        inputs=image(384), fixed=True,
    )  # fmt: skip
    return found


def _boxes(answer):
    return answer.logits, answer.pred_boxes


def detection():
    found = {}
    for name, depth, dilation, count in (
        ("detr-resnet50", "resnet50", False, "~41.4M"),
        ("detr-resnet101", "resnet101", False, "~60.3M"),
        ("detr-resnet50-dc5", "resnet50", True, None),
        ("detr-resnet101-dc5", "resnet101", True, None),
    ):
        found[name] = Net(
            make=_hf(hf.DetrForObjectDetection, lambda d=depth, c=dilation: _detr(d, c), "pixel_values", take=_boxes),
            inputs=image(480), published=count,
        )  # fmt: skip
    found["conditional-detr-resnet50"] = Net(
        make=_hf(hf.ConditionalDetrForObjectDetection, _conditional, "pixel_values", take=_boxes),
        inputs=image(480), published="~43.6M",
    )  # fmt: skip
    found["deformable-detr"] = Net(
        make=_hf(hf.DeformableDetrForObjectDetection, _deformable, "pixel_values", take=_boxes),
        inputs=image(480), fixed=True, published="40M",
    )  # fmt: skip
    found["rtdetr-r50"] = Net(
        make=_hf(hf.RTDetrForObjectDetection, lambda: hf.RTDetrConfig(num_labels=80), "pixel_values", take=_boxes),
        inputs=image(640), fixed=True,
    )  # fmt: skip
    found["rf-detr-base"] = Net(
        make=_hf(hf.RfDetrForObjectDetection, lambda: hf.RfDetrConfig(num_labels=91), "pixel_values", take=_boxes),
        inputs=image(560), fixed=True,
    )  # fmt: skip
    for size, count in (("n", "4M"), ("s", "10M"), ("m", "19M"), ("l", "31M"), ("x", "62M")):
        found[f"d-fine-{size}"] = Net(
            make=_hf(hf.DFineForObjectDetection, lambda s=size: _d_fine(s), "pixel_values", take=_boxes),
            inputs=image(640), fixed=True, published=count,
        )  # fmt: skip
    for size, count in (
        ("tiny", "12.1M"),
        ("small", "14.6M"),
        ("medium", "28.2M"),
        ("large", "46.8M"),
        ("xlarge", "118M"),
    ):
        found[f"lw-detr-{size}"] = Net(
            make=_hf(hf.LwDetrForObjectDetection, lambda s=size: _lw_detr(s), "pixel_values", take=_boxes),
            inputs=image(640), fixed=True, published=f"~{count}",
        )  # fmt: skip
    for depth, count in ((18, "20M"), (34, "31M"), (101, "76M")):
        found[f"rtdetr-r{depth}"] = Net(
            make=_hf(hf.RTDetrForObjectDetection, lambda d=depth: _rt_detr(d), "pixel_values", take=_boxes),
            inputs=image(640), fixed=True, published=count,
        )  # fmt: skip
    for size, (width, layers, heads, places), count in (
        ("b", (768, 12, 12, (2, 5, 8, 11)), "93.7M"), ("l", (1024, 24, 16, (5, 11, 17, 23)), "312M"),
        ("h", (1280, 32, 16, (7, 15, 23, 31)), "641M"),
    ):  # fmt: skip
        found[f"sam-vit-{size}"] = Net(
            make=lambda sizes=(width, layers, heads, places): Sam(*sizes), inputs=image(1024),
            published=f"~{count}",
        )  # fmt: skip
    # keypoints are chosen by their scores, so how many there are is not known beforehand: what is traced ends before
    found["superpoint"] = Net(make=_SuperPoint, inputs=image(480, 640), published="1.3M")
    found["yolos-tiny"] = Net(
        make=_hf(
            hf.YolosForObjectDetection,
            lambda: hf.YolosConfig(hidden_size=192, num_attention_heads=3, intermediate_size=768, num_labels=91),
            "pixel_values", take=_boxes,
        ),
        inputs=image(512, 864), fixed=True,
    )  # fmt: skip
    return found


def _detr(backbone, dilation):
    return hf.DetrConfig(
        use_timm_backbone=True, use_pretrained_backbone=False, backbone=backbone, dilation=dilation, num_labels=91,
        backbone_config=None,
    )  # fmt: skip


class Sam(nn.Module):
    """An image and one point in it: the image's encoder, the point's, and the masks."""

    def __init__(self, width, layers, heads, places):
        super().__init__()
        self.module = hf.SamModel(
            hf.SamConfig(
                vision_config={
                    "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
                    "global_attn_indexes": list(places), "mlp_dim": 4 * width,
                }
            )
        )  # fmt: skip

    def forward(self, pixels):
        batch = pixels.shape[0]
        points, labels = pixels.new_empty(batch, 1, 1, 2), pixels.new_empty(batch, 1, 1, dtype=torch.int32)
        answer = self.module(pixel_values=pixels, input_points=points, input_labels=labels)
        return answer.pred_masks, answer.iou_scores


def _rt_detr(depth):
    """Sizes as transformers' convert_rt_detr_original_pytorch_checkpoint_to_hf.py states them."""
    small = depth < 50
    blocks = {18: [2, 2, 2, 2], 34: [3, 4, 6, 3], 101: [3, 4, 23, 3]}[depth]
    backbone = hf.RTDetrResNetConfig(
        hidden_sizes=[64, 128, 256, 512] if small else [256, 512, 1024, 2048], depths=blocks,
        layer_type="basic" if small else "bottleneck", out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    own = {
        18: {"encoder_in_channels": [128, 256, 512], "hidden_expansion": 0.5, "decoder_layers": 3},
        34: {"encoder_in_channels": [128, 256, 512], "hidden_expansion": 0.5, "decoder_layers": 4},
        101: {"encoder_ffn_dim": 2048, "encoder_hidden_dim": 384, "decoder_in_channels": [384, 384, 384]},
    }[depth]
    return hf.RTDetrConfig(num_labels=80, backbone_config=backbone, **own)


def _lw_detr(size):
    """Sizes as the paper's table has them; of the thirteen groups of queries that are counted, one runs."""
    width, layers, queries, places = {
        "tiny": (192, 6, 100, (1, 3, 5)), "small": (192, 10, 300, (2, 4, 5, 9)), "medium": (384, 10, 300, (2, 4, 5, 9)),
        "large": (384, 10, 300, (2, 4, 5, 9)), "xlarge": (768, 10, 300, (2, 4, 5, 9)),
    }[size]  # fmt: skip
    backbone = hf.LwDetrViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=12, image_size=640,
        window_block_indices=[0, 2, 4] if layers == 6 else [0, 1, 3, 6, 7, 9],
        out_indices=list(places),
    )  # fmt: skip
    own = {
        "d_model": 384, "decoder_self_attention_heads": 12, "decoder_cross_attention_heads": 24,
        "projector_scale_factors": [2.0, 0.5],
    } if size.endswith("large") else {"projector_scale_factors": [1.0]}  # fmt: skip
    return hf.LwDetrConfig(backbone_config=backbone, num_labels=91, num_queries=queries, **own)


def _d_fine(size):
    """Sizes as transformers' convert_d_fine_original_pytorch_checkpoint_to_hf.py states them, for COCO's classes."""
    stem, mids, blocks, layers, affine, depth, expansion, decoders = {
        "n": ((16, 16), 16, (1, 1, 2, 1), 3, True, 0.5, 0.34, 3),
        "s": ((16, 16), 16, (1, 1, 2, 1), 3, True, 0.34, 0.5, 3),
        "m": ((24, 32), 32, (1, 1, 3, 1), 4, True, 0.67, 1.0, 4),
        "l": ((32, 48), 48, (1, 1, 3, 1), 6, False, 1.0, 1.0, 6),
        "x": ((32, 64), 64, (1, 2, 5, 2), 6, False, 1.0, 1.0, 6),
    }[size]
    first = {"n": 64, "s": 64, "m": 96, "l": 128, "x": 128}[size]
    outs = [first, 4 * first, 8 * first, 16 * first]
    backbone = hf.HGNetV2Config(
        stem_channels=[3, *stem], stage_in_channels=[stem[1], *outs[:3]],
        stage_mid_channels=[mids * factor for factor in (1, 2, 4, 8)], stage_out_channels=outs,
        hidden_sizes=[2 * first, *outs[1:]], stage_num_blocks=list(blocks), stage_numb_of_layers=[layers] * 4,
        use_learnable_affine_block=affine, out_indices=[3, 4] if size == "n" else [2, 3, 4],
    )  # fmt: skip
    own = {
        "n": {
            "num_feature_levels": 2, "encoder_ffn_dim": 512, "encode_proj_layers": [1], "d_model": 128,
            "encoder_hidden_dim": 128, "decoder_ffn_dim": 512, "decoder_n_points": [6, 6],
            "decoder_in_channels": [128, 128], "feat_strides": [16, 32],
        },
        "x": {"encoder_hidden_dim": 384, "encoder_ffn_dim": 2048, "decoder_in_channels": [384, 384, 384]},
    }.get(size, {})  # fmt: skip
    return hf.DFineConfig(
        **{
            "backbone_config": backbone, "num_labels": 80, "decoder_n_points": [3, 6, 3], "depth_mult": depth,
            "hidden_expansion": expansion, "decoder_layers": decoders,
            "encoder_in_channels": outs[2:] if size == "n" else outs[1:], **own,
        }
    )  # fmt: skip


class _SuperPoint(nn.Module):
    """Scores of every pixel and descriptors of every eighth, from one encoder over a grey image."""

    def __init__(self):
        super().__init__()
        self.module = hf.SuperPointForKeypointDetection(hf.SuperPointConfig())

    def forward(self, pixels):
        features = self.module.encoder(pixels[:, :1])[0]
        heads, decoder = self.module.keypoint_decoder, self.module.descriptor_decoder
        scores = heads.conv_score_b(heads.relu(heads.conv_score_a(features))).softmax(1)[:, :-1]
        rows = scores.permute(0, 2, 3, 1).unflatten(-1, (8, 8)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        described = decoder.conv_descriptor_b(decoder.relu(decoder.conv_descriptor_a(features)))
        return rows, nn.functional.normalize(described, dim=1)


def _conditional():
    return hf.ConditionalDetrConfig(
        use_timm_backbone=True, use_pretrained_backbone=False, backbone="resnet50", num_labels=91, backbone_config=None
    )


def _deformable():
    return hf.DeformableDetrConfig(
        use_timm_backbone=True, use_pretrained_backbone=False, backbone="resnet50", num_labels=91, backbone_config=None
    )


def dino_v2(size):
    width, heads, layers = {"small": (384, 6, 12), "base": (768, 12, 12), "large": (1024, 16, 24)}[size]
    return hf.Dinov2Config(
        hidden_size=width, num_attention_heads=heads, num_hidden_layers=layers, image_size=518, patch_size=14,
        out_indices=[layers * k // 4 for k in (1, 2, 3, 4)], reshape_hidden_states=False, apply_layernorm=True,
    )  # fmt: skip


def depth():
    sizes = {
        "small": (384, [48, 96, 192, 384], 64), "base": (768, [96, 192, 384, 768], 128),
        "large": (1024, [256, 512, 1024, 1024], 256),
    }  # fmt: skip
    found = {}
    for size, (width, neck, fusion) in sizes.items():
        found[f"depth-anything-{size}"] = Net(
            make=_hf(
                hf.DepthAnythingForDepthEstimation,
                lambda s=size, w=width, n=neck, f=fusion: hf.DepthAnythingConfig(
                    backbone_config=dino_v2(s), reassemble_hidden_size=w, neck_hidden_sizes=n, fusion_hidden_size=f
                ),
                "pixel_values", take=lambda a: a.predicted_depth,
            ),
            inputs=image(518), published="24.7M" if size == "small" else None,
        )  # fmt: skip
    found["dpt-large"] = Net(
        make=_hf(hf.DPTForDepthEstimation, hf.DPTConfig, "pixel_values", take=lambda a: a.predicted_depth),
        inputs=image(384),
    )
    return found


def text():
    found = {
        "albert-base-v2": (
            hf.AlbertForMaskedLM,
            lambda: hf.AlbertConfig(
                hidden_size=768, num_attention_heads=12, intermediate_size=3072, embedding_size=128
            ),
            "11.2M",  # without the pooler, which AI Hub counts
        ),
        "electra-base-discriminator": (
            hf.ElectraForPreTraining,
            lambda: hf.ElectraConfig(
                embedding_size=768, hidden_size=768, num_attention_heads=12, intermediate_size=3072
            ),
            "109M",
        ),
        "mobilebert-uncased": (hf.MobileBertForMaskedLM, hf.MobileBertConfig, "25M"),
    }
    made = {
        name: Net(
            make=_hf(model, config, "input_ids", "attention_mask", take=_logits), inputs=ids(384) * 2, published=count
        )
        for name, (model, config, count) in found.items()
    }
    made["mobilebert-squad"] = Net(
        make=_hf(
            hf.MobileBertForQuestionAnswering, hf.MobileBertConfig, "input_ids", "attention_mask",
            take=lambda a: (a.start_logits, a.end_logits),
        ),
        inputs=ids(384) * 2,
    )  # fmt: skip
    made["nomic-embed-text"] = Net(
        make=_hf(hf.NomicBertModel, hf.NomicBertConfig, "input_ids", "attention_mask", take=_hidden),
        inputs=ids(128) * 2, published="137M",
    )  # fmt: skip
    return made


def audio():
    found = {
        "wav2vec2-base": (hf.Wav2Vec2ForCTC, hf.Wav2Vec2Config, 320000, "94.4M"),
        "hubert-base": (hf.HubertForCTC, hf.HubertConfig, 320000, None),
        "wavlm-base-plus": (hf.WavLMModel, hf.WavLMConfig, 320000, None),
        "wav2vec2-conformer-large": (
            hf.Wav2Vec2ConformerForCTC,
            lambda: hf.Wav2Vec2ConformerConfig(
                hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, vocab_size=32,
                position_embeddings_type="rotary", feat_extract_norm="layer", conv_bias=True, do_stable_layer_norm=True,
            ),
            160000,
            None,
        ),
    }  # fmt: skip
    return {
        name: Net(
            make=_hf(model, config, "input_values", take=_hidden if "wavlm" in name else _logits),
            inputs=((1, length),), published=count,
        )
        for name, (model, config, length, count) in found.items()
    }  # fmt: skip


def _vision(width, heads, layers, patch, side, project):
    return hf.CLIPVisionConfig(
        hidden_size=width, num_attention_heads=heads, num_hidden_layers=layers, intermediate_size=4 * width,
        patch_size=patch, image_size=side, projection_dim=project,
    )  # fmt: skip


def _text(width, heads, layers, project, **more):
    return hf.CLIPTextConfig(
        hidden_size=width, num_attention_heads=heads, num_hidden_layers=layers, intermediate_size=4 * width,
        projection_dim=project, **more,
    )  # fmt: skip


class Clip(nn.Module):
    """Both towers and their product, as AI Hub measures it: one image, one text."""

    def __init__(self, vision, text):
        super().__init__()
        self.model = hf.CLIPModel(
            hf.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=512)
        )

    def forward(self, pixels, tokens):
        return self.model(input_ids=tokens, pixel_values=pixels, attention_mask=None).logits_per_image


def contrastive():
    found = {
        "clip-vit-b-16": Net(
            make=lambda: Clip(_vision(768, 12, 12, 16, 224, 512), _text(512, 8, 12, 512)),
            inputs=(*image(224), *ids(77)), fixed=True, published="150M",
        ),
        "clip-vit-b-32": Net(
            make=lambda: Clip(_vision(768, 12, 12, 32, 224, 512), _text(512, 8, 12, 512)),
            inputs=(*image(224), *ids(77)), fixed=True, published="151M",
        ),
    }  # fmt: skip
    towers = {
        "clip-vit-b-16": ((768, 12, 12, 16, 224, 512), (512, 8, 12, 512)),
        "clip-vit-b-32": ((768, 12, 12, 32, 224, 512), (512, 8, 12, 512)),
        "clip-vit-l-14": ((1024, 16, 24, 14, 224, 768), (768, 12, 12, 768)),
        "clip-vit-l-14-336": ((1024, 16, 24, 14, 336, 768), (768, 12, 12, 768)),
        "clip-vit-l-14-laion2b": ((1024, 16, 24, 14, 224, 768), (768, 12, 12, 768)),
        "clip-resnet-50": (None, (512, 8, 12, 1024)),
        "clip-resnet-50x4": (None, (640, 10, 12, 640)),
        "tinyclip-vit-39m-16-text-19m": ((512, 8, 12, 16, 224, 512), (512, 8, 6, 512)),
        "tinyclip-vit-40m-32-text-19m": ((512, 8, 12, 32, 224, 512), (512, 8, 6, 512)),
        "tinyclip-vit-61m-32-text-29m": ((640, 10, 12, 32, 224, 512), (512, 8, 9, 512)),
    }
    for name, (vision, words) in towers.items():
        if vision:
            found[f"{name}/image_encoder"] = Net(
                make=_hf(hf.CLIPVisionModelWithProjection, lambda v=vision: _vision(*v), "pixel_values",
                         take=lambda a: a.image_embeds),
                inputs=image(vision[4]),
            )  # fmt: skip
        found[f"{name}/text_encoder"] = Net(
            make=_hf(
                hf.CLIPTextModelWithProjection, lambda t=words: _text(*t), "input_ids", take=lambda a: a.text_embeds
            ),
            inputs=ids(77),
        )
    for name, (width, heads, layers, patch, side) in {
        "siglip-b-16": (768, 12, 12, 16, 224), "siglip-b-16-256": (768, 12, 12, 16, 256),
        "siglip-b-32-256": (768, 12, 12, 32, 256), "siglip-l-16-256": (1024, 16, 24, 16, 256),
    }.items():  # fmt: skip
        sizes = {"hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers,
                 "intermediate_size": 4 * width}  # fmt: skip
        found[f"{name}/image_encoder"] = Net(
            make=_hf(hf.SiglipVisionModel,
                     lambda s=sizes, p=patch, i=side: hf.SiglipVisionConfig(**s, patch_size=p, image_size=i),
                     "pixel_values", take=lambda a: a.pooler_output),
            inputs=image(side),
        )  # fmt: skip
        found[f"{name}/text_encoder"] = Net(
            make=_hf(hf.SiglipTextModel, lambda s=sizes: hf.SiglipTextConfig(**s, max_position_embeddings=64),
                     "input_ids", take=lambda a: a.pooler_output),
            inputs=ids(64),
        )  # fmt: skip
    return found


def open_vocabulary():
    return {
        "owlvit-base-patch32": Net(
            make=_hf(
                hf.OwlViTForObjectDetection, hf.OwlViTConfig, "input_ids", "pixel_values",
                take=lambda a: (a.logits, a.pred_boxes),
            ),
            inputs=(*ids(16), *image(768)), fixed=True,
        ),
        "owlv2-base-patch16/vision": Net(
            make=_hf(hf.Owlv2VisionModel, lambda: hf.Owlv2VisionConfig(image_size=960), "pixel_values", take=_hidden),
            inputs=image(960), fixed=True,
        ),
        "owlv2-base-patch16/text": Net(
            make=_hf(hf.Owlv2TextModel, hf.Owlv2TextConfig, "input_ids", take=_hidden), inputs=ids(16), fixed=True
        ),
    }  # fmt: skip


def nets():
    return {
        **video(), **segmentation(), **detection(), **depth(), **text(), **audio(), **contrastive(),
        **open_vocabulary(),
    }  # fmt: skip
