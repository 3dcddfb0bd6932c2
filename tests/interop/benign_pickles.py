"""Harmless files as torch, scikit-learn, pandas and others write them: no scanner may call one of them dangerous.

Those of the class "code by value" hold source or bytecode, which loading runs, or makes functions of: harmless, too,
but a scanner has to object.

`benign_files` yields the name of each and a function that writes it to a path. Made with torch 2.13, torchvision 0.28,
lightning 2.6, transformers 5, scikit-learn 1.9, pandas 3, scipy, joblib, dill, cloudpickle, xgboost and lightgbm; what
is not installed is left out.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import importlib
import ipaddress
import operator
import pathlib
import pickle
import random
import re
import types
import uuid
import warnings
import zoneinfo
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Write = Callable[[pathlib.Path], None]


class Color(enum.Enum):
    RED = 1


class Flags(enum.IntFlag):
    A = 1
    B = 2


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Settings:
    rate: float = 0.1
    layers: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: int = 1


class Odd(dict[str, int]):
    pass


class Failed(ValueError):
    pass


def standard_values() -> dict[str, Any]:
    """Return values of the standard library."""
    named: Any = collections.ChainMap({"a": 1}, {"b": 2})
    return {
        "datetime": datetime.datetime(2024, 1, 2, 3, 4, tzinfo=datetime.UTC),
        "dates": [datetime.date(2024, 1, 2), datetime.time(1, 2), datetime.timedelta(1)],
        "zoneinfo": [zoneinfo.ZoneInfo(name) for name in zoneinfo.available_timezones() if name == "UTC"],
        "timezone": datetime.timezone(datetime.timedelta(hours=1)),
        "decimal": [decimal.Decimal("1.5"), fractions.Fraction(1, 3), 1 + 2j, decimal.Context()],
        "path": [pathlib.Path("/a/b"), pathlib.PurePosixPath("c"), pathlib.PureWindowsPath("c:/d")],
        "enum": [Color.RED, Flags.A | Flags.B, re.IGNORECASE],
        "namedtuple": Point(1, 2),
        "dataclass": [Settings(layers=[1]), Slotted()],
        "collections": [collections.deque([1], 3), collections.Counter("aab"), collections.defaultdict(list, a=[1])],
        "ordered": collections.OrderedDict(a=1),
        "chain": named,
        "defaultdicts": [collections.defaultdict(kind) for kind in (int, float, dict, set, str, tuple)],
        "partial": functools.partial(int, base=2),
        "partial of numpy": functools.partial(np.mean, axis=0),
        "regex": re.compile("a+"),
        "uuid": uuid.UUID(int=1),
        "random": random.Random(1),
        "range": [range(3), slice(1, 2), ..., NotImplemented],
        "types": [int, str, dict, list, type(None), object, Exception, bytes],
        "functions": [len, sum, max, sorted, abs, np.mean, np.exp, standard_values],
        "sets": [{1, 2}, frozenset([3]), bytearray(b"a"), b"bytes"],
        "exceptions": [ValueError("a", 1), KeyError("b"), OSError(2, "c"), Failed("d")],
        "subclass": Odd(a=1),
        "namespace": types.SimpleNamespace(a=1),
        "ip": ipaddress.ip_address("127.0.0.1"),
        "iterators": [iter([1, 2]), iter((1,)), enumerate([1]), zip([1], [2], strict=False), reversed([1])],
        "getters": [operator.itemgetter(0), operator.itemgetter(1, 2)],
        "bound": [[].append, {}.get],
        "argparse": importlib.import_module("argparse").Namespace(lr=0.1),
        "mappingproxy": collections.UserDict({"a": 1}),
        "logger": importlib.import_module("logging").getLogger("pparse"),
    }


def numpy_values() -> dict[str, Any]:
    """Return values of numpy."""
    generator = np.random.default_rng(1)
    return {
        "arrays": [np.zeros((2, 3), kind) for kind in ("f4", "f8", "i8", "?", "c16", "f2", "u1")],
        "fortran": np.asfortranarray(np.eye(3)),
        "scalars": [
            np.float32(1),
            np.int64(2),
            np.bool_(True),
            np.float64(3),
            np.str_("a"),
            np.datetime64("2024-01-01"),
        ],
        "dtypes": [np.dtype("f4"), np.dtype([("a", "i4"), ("b", "f8")]), np.dtype("U3"), np.float32],
        "objects": np.array([None, "a", {"b": 1}], object),
        "record": np.zeros(2, [("a", "i4")]).view(np.recarray),
        "masked": np.ma.array([1, 2], mask=[0, 1]),
        "matrix": np.matrix([[1]]),
        "ufunc": [np.add, np.log],
        "random": [
            generator,
            np.random.RandomState(1),
            np.random.PCG64(1),
            np.random.MT19937(1),
            np.random.SeedSequence(1),
        ],
        "poly": [np.poly1d([1, 2]), np.polynomial.Polynomial([1, 2])],
        "texts": [np.array(["a", "bc"]), np.array([b"a"]), np.array(["2024-01-01"], "M8[D]")],
    }


def scipy_values() -> dict[str, Any]:
    """Return values of scipy."""
    from scipy import interpolate, sparse, spatial, stats

    matrix = sparse.random(5, 5, 0.5, random_state=1)
    return {
        **{kind: matrix.asformat(kind) for kind in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")},
        "array": sparse.csr_array(matrix),
        "interp1d": interpolate.interp1d([0, 1, 2], [1, 2, 3]),
        "spline": interpolate.CubicSpline([0, 1, 2], [1, 2, 3]),
        "kdtree": [spatial.KDTree(np.eye(3)), spatial.cKDTree(np.eye(3))],
        "norm": [stats.norm(0, 1), stats.uniform, stats.expon()],
        "rotation": spatial.transform.Rotation.identity(),
    }


def pandas_values() -> dict[str, Any]:
    """Return values of pandas."""
    import pandas as pd

    times = pd.date_range("2024-01-01", periods=3, freq="D")
    return {
        "frame": pd.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [1.0, None]}),
        "series": pd.Series([1, 2], name="s"),
        "times": pd.DataFrame({"a": [1, 2, 3]}, index=times),
        "zone": pd.Series(pd.date_range("2024-01-01", periods=3, tz="UTC")),
        "categories": pd.DataFrame({"a": pd.Categorical(["x", "y"])}),
        "multi": pd.DataFrame([[1]], index=pd.MultiIndex.from_tuples([("a", 1)])),
        "nullable": pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": pd.array([True, None], "boolean")}),
        "text": pd.Series(["a", None], dtype="string"),
        "scalars": [
            pd.Timestamp("2024-01-01"),
            pd.Timedelta(1),
            pd.Period("2024-01"),
            pd.Interval(0, 1),
            pd.NaT,
            pd.NA,
        ],
        "sparse": pd.Series(pd.arrays.SparseArray([0, 0, 1])),
        "intervals": pd.cut([1, 2, 3], 2),
        "period": pd.Series(pd.period_range("2024-01", periods=2, freq="M")),
        "offsets": [pd.offsets.MonthEnd(), pd.offsets.BDay(2)],
        "groupby": pd.Index([1, 2]),
    }


def estimators() -> dict[str, Any]:
    """Return fitted estimators of scikit-learn."""
    from sklearn.compose import ColumnTransformer
    from sklearn.datasets import make_classification
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import FeatureUnion, make_pipeline
    from sklearn.utils import Bunch

    x, y = make_classification(60, 6, random_state=1)
    x = abs(x)
    kinds = """
        linear_model LinearRegression Ridge Lasso ElasticNet LogisticRegression SGDClassifier Perceptron BayesianRidge
        linear_model HuberRegressor PoissonRegressor RidgeClassifierCV LassoCV
        tree DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier
        ensemble RandomForestClassifier RandomForestRegressor GradientBoostingClassifier
        ensemble HistGradientBoostingClassifier AdaBoostClassifier BaggingClassifier ExtraTreesClassifier
        ensemble IsolationForest GradientBoostingRegressor HistGradientBoostingRegressor
        svm SVC SVR LinearSVC OneClassSVM NuSVC
        neighbors KNeighborsClassifier NearestNeighbors KernelDensity LocalOutlierFactor RadiusNeighborsClassifier
        naive_bayes GaussianNB MultinomialNB BernoulliNB ComplementNB
        cluster KMeans DBSCAN AgglomerativeClustering MiniBatchKMeans SpectralClustering Birch MeanShift HDBSCAN
        decomposition PCA TruncatedSVD NMF FastICA LatentDirichletAllocation KernelPCA IncrementalPCA
        preprocessing StandardScaler MinMaxScaler OneHotEncoder LabelEncoder PolynomialFeatures QuantileTransformer
        preprocessing PowerTransformer KBinsDiscretizer OrdinalEncoder Normalizer RobustScaler SplineTransformer
        preprocessing FunctionTransformer LabelBinarizer
        neural_network MLPClassifier MLPRegressor BernoulliRBM
        gaussian_process GaussianProcessClassifier GaussianProcessRegressor
        discriminant_analysis LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis
        feature_selection SelectKBest VarianceThreshold SelectPercentile
        manifold TSNE Isomap MDS
        mixture GaussianMixture BayesianGaussianMixture
        calibration CalibratedClassifierCV
        impute SimpleImputer KNNImputer MissingIndicator
        dummy DummyClassifier DummyRegressor
        covariance EllipticEnvelope EmpiricalCovariance
        kernel_ridge KernelRidge
        cross_decomposition PLSRegression
        semi_supervised LabelPropagation
        kernel_approximation Nystroem RBFSampler
    """
    made: dict[str, Any] = {}
    for row in kinds.strip().splitlines():
        module, *names = row.split()
        for name in names:
            made[name] = getattr(importlib.import_module(f"sklearn.{module}"), name)()
    for name, one in made.items():
        one.fit(*((y,) if name in ("LabelEncoder", "LabelBinarizer") else (x, y)))
    text = importlib.import_module("sklearn.feature_extraction.text")
    words = ["a cat sat", "a dog ran"]
    made["CountVectorizer"] = text.CountVectorizer().fit(words)
    made["TfidfVectorizer"] = text.TfidfVectorizer().fit(words)
    made["HashingVectorizer"] = text.HashingVectorizer()
    made["DictVectorizer"] = importlib.import_module("sklearn.feature_extraction").DictVectorizer().fit([{"a": 1}])
    logistic, scaler, forest = made["LogisticRegression"], made["StandardScaler"], made["RandomForestClassifier"]
    made["Pipeline"] = make_pipeline(scaler, logistic).fit(x, y)
    made["ColumnTransformer"] = ColumnTransformer([("a", scaler, [0, 1])], remainder="passthrough").fit(x)
    made["FeatureUnion"] = FeatureUnion([("a", scaler)]).fit(x)
    made["GridSearchCV"] = GridSearchCV(logistic, {"C": [0.1, 1]}, cv=2).fit(x, y)
    ensemble, multi = importlib.import_module("sklearn.ensemble"), importlib.import_module("sklearn.multiclass")
    made["VotingClassifier"] = ensemble.VotingClassifier([("a", logistic), ("b", forest)]).fit(x, y)
    made["StackingClassifier"] = ensemble.StackingClassifier([("a", logistic)], cv=2).fit(x, y)
    made["OneVsRestClassifier"] = multi.OneVsRestClassifier(logistic).fit(x, y)
    made["IsotonicRegression"] = importlib.import_module("sklearn.isotonic").IsotonicRegression().fit(x[:, 0], y)
    made["MultiOutput"] = (
        importlib.import_module("sklearn.multioutput").MultiOutputRegressor(made["Ridge"]).fit(x, x[:, :2])
    )
    made["Bunch"] = Bunch(a=1)
    return made


def modules() -> dict[str, Any]:
    """Return whole models of torch."""
    import torch
    from torch import nn

    made = {
        "mlp": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(), nn.LayerNorm(4), nn.Softmax(-1)),
        "conv": nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        ),
        "conv1d": nn.Sequential(
            nn.Conv1d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3), nn.Conv3d(1, 1, 1), nn.Upsample(2), nn.GroupNorm(1, 4)
        ),
        "lstm": nn.LSTM(4, 4, 2, bidirectional=True),
        "gru": nn.ModuleList([nn.GRU(4, 4), nn.RNN(4, 4), nn.LSTMCell(4, 4)]),
        "transformer": nn.Transformer(8, 2, 1, 1, 16),
        "encoder": nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
        "attention": nn.MultiheadAttention(8, 2),
        "embedding": nn.ModuleDict({"a": nn.Embedding(5, 4), "b": nn.EmbeddingBag(5, 4)}),
        "activations": nn.Sequential(
            nn.GELU(),
            nn.SiLU(),
            nn.LeakyReLU(),
            nn.ELU(),
            nn.Tanh(),
            nn.Sigmoid(),
            nn.PReLU(),
            nn.Hardswish(),
            nn.ReLU6(),
            nn.Mish(),
            nn.Identity(),
        ),
        "losses": nn.ModuleList(
            [nn.CrossEntropyLoss(), nn.MSELoss(), nn.BCEWithLogitsLoss(), nn.L1Loss(), nn.NLLLoss()]
        ),
        "weight norm": torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
        "parameters": nn.ParameterList([nn.Parameter(torch.ones(2))]),
        "fused": nn.utils.fuse_conv_bn_eval(nn.Conv2d(1, 1, 1).eval(), nn.BatchNorm2d(1).eval()),
        "parallel": nn.DataParallel(nn.Linear(2, 2)),
        "instance": nn.Sequential(
            nn.InstanceNorm2d(3), nn.PixelShuffle(2), nn.ZeroPad2d(1), nn.Unflatten(1, (1, 2)), nn.Bilinear(2, 2, 2)
        ),
        "quantized": torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear}),
    }
    try:
        from torchvision import models, transforms
    except (ImportError, RuntimeError):  # RuntimeError: of another torch
        return made
    for name in (
        "resnet18",
        "mobilenet_v2",
        "mobilenet_v3_small",
        "squeezenet1_0",
        "shufflenet_v2_x0_5",
        "efficientnet_b0",
        "densenet121",
        "googlenet",
        "mnasnet0_5",
        "regnet_y_400mf",
        "convnext_tiny",
        "swin_t",
        "maxvit_t",
        "alexnet",
        "inception_v3",
        "vgg11",
        "vit_b_16",
    ):
        if name in ("alexnet", "vgg11", "vit_b_16", "convnext_tiny", "maxvit_t", "inception_v3"):
            with torch.device("meta"):
                made[f"torchvision {name}"] = models.get_model(name, weights=None)
        else:
            made[f"torchvision {name}"] = models.get_model(name, weights=None)
    for name in (
        "fasterrcnn_mobilenet_v3_large_fpn",
        "deeplabv3_mobilenet_v3_large",
        "ssdlite320_mobilenet_v3_large",
        "r3d_18",
    ):
        with torch.device("meta"):
            try:
                made[f"torchvision {name}"] = (
                    models.get_model(name, weights=None, weights_backbone=None)
                    if name != "r3d_18"
                    else models.get_model(name)
                )
            except Exception:
                continue
    made["torchvision transforms"] = transforms.Compose(
        [transforms.Resize(8), transforms.CenterCrop(4), transforms.ToTensor(), transforms.Normalize([0.5], [0.5])]
    )
    return made


def torch_values() -> dict[str, Any]:
    """Return state dicts, optimizers and other values of torch."""
    import torch

    kinds = (
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.bool,
        torch.uint8,
        torch.complex64,
        torch.float64,
    )
    kinds += (
        torch.int8,
        torch.int16,
        torch.int32,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.uint16,
        torch.complex128,
    )
    model = torch.nn.Linear(4, 4)
    model(torch.ones(4)).sum().backward()
    made: dict[str, Any] = {"state": model.state_dict(), "dtypes": [torch.zeros(2, dtype=kind) for kind in kinds]}
    for name in (
        "Adam",
        "AdamW",
        "SGD",
        "RMSprop",
        "Adagrad",
        "Adadelta",
        "NAdam",
        "RAdam",
        "Adamax",
        "ASGD",
        "Rprop",
        "LBFGS",
    ):
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1)
        optimizer.step(lambda: torch.ones(1, requires_grad=True).sum())
        made[f"optimizer {name}"] = {"optimizer": optimizer.state_dict(), "model": model.state_dict(), "epoch": 3}
    made["whole optimizer"] = torch.optim.AdamW(model.parameters())
    schedulers = torch.optim.lr_scheduler
    step = schedulers.StepLR(made["whole optimizer"], 2)
    made["schedulers"] = [step.state_dict(), schedulers.CosineAnnealingLR(made["whole optimizer"], 5)]
    made["parameter"] = [torch.nn.Parameter(torch.ones(2)), torch.nn.Buffer(torch.ones(1))]
    made["sparse"] = [
        torch.eye(3).to_sparse(),
        torch.eye(3).to_sparse_csr(),
        torch.eye(4).to_sparse_bsr(2),
        torch.eye(3).to_sparse_csc(),
    ]
    made["quantized"] = [
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        torch.quantize_per_channel(torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, torch.qint8),
    ]
    made["other tensors"] = [
        torch.ones(2, device="meta"),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.ones(2).conj(),
        torch.ones(3).expand(2, 3),
    ]
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    made["nested"] = jagged
    made["things"] = [torch.Size([1]), torch.device("cpu"), torch.float32, torch.strided]
    made["generator"] = [torch.get_rng_state(), torch.Generator()][:1]
    made["storage"] = [torch.ones(2).untyped_storage(), torch.ones(2).storage()]
    made["numpy in it"] = {
        "scores": np.ones(2),
        "best": np.float64(1),
        "rng": np.random.get_state(),
        "args": importlib.import_module("argparse").Namespace(a=1),
    }
    made["hooked"] = torch.ones(2, requires_grad=True)
    made["distribution"] = [torch.distributions.Normal(0.0, 1.0), torch.distributions.Categorical(torch.ones(3))]
    made["dataset"] = [
        torch.utils.data.TensorDataset(torch.ones(2)),
        torch.utils.data.Subset(torch.utils.data.TensorDataset(torch.ones(2)), [0]),
    ]
    made["averaged"] = torch.optim.swa_utils.AveragedModel(model)
    made["scaler"] = torch.amp.GradScaler("cpu").state_dict()
    return made


def transformers_values() -> dict[str, Any]:
    """Return what the trainer of transformers saves beside a model, and small models."""
    import transformers as tf

    made: dict[str, Any] = {"arguments": tf.TrainingArguments("pparse-never", use_cpu=True, report_to=[])}
    made["seq2seq arguments"] = tf.Seq2SeqTrainingArguments("pparse-never", use_cpu=True, report_to=[])
    small = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "vocab_size": 20,
    }
    made["configs"] = [
        tf.BertConfig(**small),
        tf.GPT2Config(n_embd=8, n_layer=1, n_head=2),
        tf.LlamaConfig(**small),
        tf.T5Config(),
        tf.ViTConfig(),
    ]
    made["generation"] = tf.GenerationConfig()
    made["bert"] = tf.BertModel(tf.BertConfig(**small))
    made["gpt2"] = tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=20))
    made["llama"] = tf.LlamaForCausalLM(tf.LlamaConfig(**small))
    made["vit"] = tf.ViTModel(tf.ViTConfig(**{key: value for key, value in small.items() if key != "vocab_size"}))
    made["control"] = tf.TrainerState()
    return made


def _traced(path: pathlib.Path) -> None:
    import torch

    torch.save(torch.fx.symbolic_trace(torch.nn.Linear(2, 2)), path)


def _lightning(path: pathlib.Path) -> None:
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self, rate: float = 0.1) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    trainer = lightning.Trainer(
        max_steps=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=str(path.parent / "lightning"),
        callbacks=[lightning.pytorch.callbacks.ModelCheckpoint(dirpath=str(path.parent / "lightning"), monitor=None)],
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(4, 2), 2))
    trainer.save_checkpoint(path)


def boosters() -> dict[str, Any]:
    """Return models of xgboost and lightgbm."""
    import lightgbm
    import xgboost

    x, y = np.eye(30), np.arange(30) % 2
    made = {
        "xgboost": xgboost.XGBClassifier(n_estimators=2).fit(x, y),
        "xgboost regressor": xgboost.XGBRegressor(n_estimators=2).fit(x, y),
    }
    made["lightgbm"] = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(x, y)
    made["booster"] = made["xgboost"].get_booster()
    return made


def _dump(value: Any, protocol: int) -> Write:
    return lambda path: path.write_bytes(pickle.dumps(value, protocol)) and None


def _save(value: Any, new: bool = True) -> Write:
    import torch

    def write(path: pathlib.Path) -> None:
        torch.save(value, path, _use_new_zipfile_serialization=new)

    return write


def _joblib(value: Any, compress: Any = 0) -> Write:
    import joblib

    def write(path: pathlib.Path) -> None:
        joblib.dump(value, path, compress=compress)

    return write


def _by_value(value: Any, library: str) -> Write:
    return lambda path: path.write_bytes(importlib.import_module(library).dumps(value)) and None


def benign_files() -> Iterator[tuple[str, str, Write]]:
    """Go through the files: class, name, what writes it."""
    for name, value in standard_values().items():
        for protocol in (0, 2, 4, 5):
            yield "standard library", f"{name}-{protocol}.pkl", _dump(value, protocol)
    for kind, make in {
        "numpy": numpy_values,
        "scipy": scipy_values,
        "pandas": pandas_values,
        "boosters": boosters,
    }.items():
        for name, value in _made(make).items():
            for protocol in (2, 4, 5):
                yield kind, f"{name}-{protocol}.pkl", _dump(value, protocol)
            yield kind, f"{name}.joblib", _joblib(value)
    objects = np.array([None, "a", 1.5], object)
    yield "numpy", "objects.npy", lambda path: np.save(path, objects, allow_pickle=True)
    yield "numpy", "objects.npz", lambda path: np.savez(path, a=objects, b=np.eye(2))
    for number, (name, value) in enumerate(_made(estimators).items()):
        yield "scikit-learn", f"{name}.pkl", _dump(value, pickle.DEFAULT_PROTOCOL)
        yield "scikit-learn", f"{name}.joblib", _joblib(value, [0, 3, ("gzip", 3), ("xz", 1)][number % 4])
    for kind, make in {"torch": torch_values, "torch model": modules, "transformers": transformers_values}.items():
        for name, value in _made(make).items():
            yield kind, f"{name}.pt", _save(value)
            if not name.startswith("torchvision"):
                yield kind, f"{name}-legacy.bin", _save(value, new=False)
            if hasattr(value, "state_dict") and kind == "torch model" and not name.startswith("torchvision t"):
                yield kind, f"{name}-state.pth", _save(value.state_dict())
    yield "lightning", "model.ckpt", _lightning
    for library in ("dill", "cloudpickle"):
        yield library, "values.pkl", _by_value(standard_values()["ordered"], library)
        yield "code by value", f"function-{library}.pkl", _by_value(lambda x: x + 1, library)
        yield "code by value", f"class-{library}.pkl", _by_value(type("Own", (), {"a": 1})(), library)
    yield "code by value", "fx.pt", _traced


def _made(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return make()
        except ImportError as error:
            print(f"left out: {error}")
            return {}
