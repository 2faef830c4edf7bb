"""The pictures of the documents, each drawn from results or from the package's arithmetic."""

from pictures.picture import Picture
from pictures.results import RESULTS
from pictures.search import SEARCH
from pictures.teaching import TEACHING

PICTURES: tuple[Picture, ...] = (*RESULTS, *SEARCH, *TEACHING)
"""Every picture, by the order of the documents."""

__all__ = ["PICTURES", "Picture"]
