"""lm-evaluation-harness's results: how good a model's answers are, beside how fast they come.

Shape: EleutherAI/lm-evaluation-harness, lm_eval/loggers/evaluation_tracker.py: `results`, by task, with figures named
`METRIC,FILTER` and `METRIC_stderr,FILTER`; `n-samples`, `config` (model, model_args), `model_name`, `lm_eval_version`
and `total_evaluation_time_seconds`. The evaluation is the phase run; scores are figures of the profile.
"""

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, keep_figures
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import mapping, moment, number, text


class LmEval:
    name = "lm-eval"
    title = "lm-evaluation-harness"

    def matches(self, document: Document) -> bool:
        keys, results = document.keys, document.keys.get("results")
        return isinstance(results, dict) and ("n-samples" in keys or "n-shot" in keys or "lm_eval_version" in keys)

    def read(self, document: Document) -> tuple[Profile, ...]:
        keys = document.keys
        name = text(keys.get("model_name")) or text(mapping(keys.get("config")).get("model_args"))
        version = text(keys.get("lm_eval_version"))
        draft = Draft(tool="lm-eval", version=version, model=ModelFacts(name=name) if name else None)
        figures: dict[str, float] = {}
        for task, row in mapping(keys["results"]).items():
            # Figures by task and metric; what is not known ("N/A") is left out, and so is the task's own name
            # (`alias`).
            scores = {
                f"{task}/{metric.removesuffix(',none')}": moment(value, f"`{task}.{metric}`")
                for metric, value in mapping(row).items()
                if metric != "alias" and isinstance(value, int | float) and not isinstance(value, bool)
            }
            figures |= scores
        if not figures:
            raise FormatError("It has no scores.", remedy="Save the results again with --output_path.")
        keep_figures(draft, figures)
        seconds = keys.get("total_evaluation_time_seconds")
        if seconds is not None:
            took = number(seconds, "`total_evaluation_time_seconds`")
            draft.phases.append(Phase(name="run", time_s=took, statistic="sum"))
        return (finish(draft, document),)


importer = LmEval()
