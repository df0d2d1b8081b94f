"""OpenVINO's intermediate representation: an XML file of layers, and a .bin file of their constants beside it."""

from inferometer.formats.openvino.read import OpenvinoReader

reader = OpenvinoReader()

__all__ = ["OpenvinoReader", "reader"]
