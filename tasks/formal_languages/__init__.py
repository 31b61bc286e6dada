"""Formal languages, one folder per class: tests of counting, of stacks and of state tracking.

To add a language, write its file, then import its class and list it here. `language.py` describes
the parts of a language; docs/tasks.md has a worked example, with an independent solution to test.
"""

from fastweights.tasks.formal_languages.context_free.modular_arithmetic_brackets import (
    ModularArithmeticBrackets,
)
from fastweights.tasks.formal_languages.context_free.reverse_string import ReverseString
from fastweights.tasks.formal_languages.context_free.stack_manipulation import StackManipulation
from fastweights.tasks.formal_languages.context_sensitive.bucket_sort import BucketSort
from fastweights.tasks.formal_languages.context_sensitive.missing_duplicate import MissingDuplicate
from fastweights.tasks.formal_languages.counter.a_n_b_n import ANBN
from fastweights.tasks.formal_languages.counter.a_n_b_n_c_n import ANBNCN
from fastweights.tasks.formal_languages.counter.a_n_b_n_sigma import ANBNSigma
from fastweights.tasks.formal_languages.counter.dyck_1 import Dyck1
from fastweights.tasks.formal_languages.counter.l5 import L5
from fastweights.tasks.formal_languages.counter.reset_dyck_1 import ResetDyck1
from fastweights.tasks.formal_languages.counter.shuffle_2 import Shuffle2
from fastweights.tasks.formal_languages.language import Language
from fastweights.tasks.formal_languages.regular.aa import AA
from fastweights.tasks.formal_languages.regular.abab import ABAB
from fastweights.tasks.formal_languages.regular.cycle_navigation import CycleNavigation
from fastweights.tasks.formal_languages.regular.cycle_navigation_prefixes import (
    CycleNavigationPrefixes,
)
from fastweights.tasks.formal_languages.regular.even_pairs import EvenPairs
from fastweights.tasks.formal_languages.regular.even_pairs_prefixes import EvenPairsPrefixes
from fastweights.tasks.formal_languages.regular.modular_arithmetic import ModularArithmetic
from fastweights.tasks.formal_languages.regular.modular_arithmetic_prefixes import (
    ModularArithmeticPrefixes,
)
from fastweights.tasks.formal_languages.regular.parity import Parity
from fastweights.tasks.formal_languages.regular.word_problem import S3, S5

_LANGUAGES = (
    *(Parity, AA, ABAB, EvenPairsPrefixes, CycleNavigationPrefixes, ModularArithmeticPrefixes),
    *(S3, S5, EvenPairs, CycleNavigation, ModularArithmetic),
    *(ANBN, ANBNCN, Shuffle2, Dyck1, ResetDyck1, L5, ANBNSigma),
    *(ReverseString, StackManipulation, ModularArithmeticBrackets),
    *(BucketSort, MissingDuplicate),
)
LANGUAGES: dict[str, type[Language]] = {language.name: language for language in _LANGUAGES}

__all__ = ["LANGUAGES", "Language"]
