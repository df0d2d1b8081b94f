"""CTranslate2's folders: a file with the weights and the switches of the architecture, and a vocabulary."""

from inferometer.formats.ctranslate2.read import CTranslate2Reader

reader = CTranslate2Reader()

__all__ = ["CTranslate2Reader", "reader"]
