"""Networks by the names their packages have for them: `timm:resnet50`, `torchvision:fcn_resnet50`.

`shipped` finds a graph in the files that come with Inferometer; `packages` and `tracing` make one from the installed
package; `read` chooses between them; `archive` is the form of the files, and `build` makes them.
"""
