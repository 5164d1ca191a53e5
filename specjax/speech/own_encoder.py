"""A Whisper that hears by an encoder of its own, beside one whose states prompts have.

Its states travel with its weights, {"model": params, "heard": states [B, S, E]}.
"""

from specjax.types import Encoded, Model, Prompt


def apart(model: Model) -> Model:
    """The same model, of these parameters; what prompts have for others it leaves."""

    def init(params, prompt: Prompt, slots: int):
        own = prompt._replace(inputs=Encoded(params["heard"]))
        return model.init(params["model"], own, slots)

    def apply(params, *arguments):
        return model.apply(params["model"], *arguments)

    def readout(params, features):
        return model.readout(params["model"], features)

    return model._replace(init=init, apply=apply, readout=readout, shapes=None)
