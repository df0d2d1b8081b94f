"""How many of a graph's parameters one token uses."""

from inferometer.core.graph import Graph


def active_parameters(graph: Graph) -> int:
    """All parameters but those of the experts that a token is not routed to.

    Routers, shared experts and the whole embedding count: a dense model's active parameters are all of them. (Some
    authors leave the embedding out, because a token reads one row of it; their figures are smaller by the table.)
    """
    idle = 0
    for block, op in graph.ops():
        if op.kind == "moe_experts":
            experts, chosen = op["experts"], op["top_k"]
            idle += block.count * (op.parameters // experts) * max(experts - chosen, 0)
    return graph.parameters - idle
