"""Encoders trained under schedules of the temperature inside the loss."""

from infonce_jax.encoders import metrics
from infonce_jax.encoders.architectures import Architecture, conv, mlp, text
from infonce_jax.encoders.augmentations import Augmentation
from infonce_jax.encoders.clip import CLIP, clip
from infonce_jax.encoders.data import Digits, digits
from infonce_jax.encoders.evaluation import Accuracy, Retrieval, accuracy, retrieval
from infonce_jax.encoders.glyphs import Glyphs, glyphs
from infonce_jax.encoders.langevin import langevin
from infonce_jax.encoders.moco import MoCo, moco
from infonce_jax.encoders.objective import FullBatch, Objective, Views
from infonce_jax.encoders.orbit import Orbit, orbit
from infonce_jax.encoders.saving import load_parameters, save_parameters
from infonce_jax.encoders.simclr import SimCLR, simclr
from infonce_jax.encoders.temperature import Learned, TauSchedule, learned, parse_temperature
from infonce_jax.encoders.trainer import Snapshot, Trainer
from infonce_jax.encoders.training import Training, TrainingStopped, full_batch, optimise, train

__all__ = [
    "CLIP",
    "Accuracy",
    "Architecture",
    "Augmentation",
    "Digits",
    "FullBatch",
    "Glyphs",
    "Learned",
    "MoCo",
    "Objective",
    "Orbit",
    "Retrieval",
    "SimCLR",
    "Snapshot",
    "TauSchedule",
    "Trainer",
    "Training",
    "TrainingStopped",
    "Views",
    "accuracy",
    "clip",
    "conv",
    "digits",
    "full_batch",
    "glyphs",
    "langevin",
    "learned",
    "load_parameters",
    "metrics",
    "mlp",
    "moco",
    "optimise",
    "orbit",
    "parse_temperature",
    "retrieval",
    "save_parameters",
    "simclr",
    "text",
    "train",
]
