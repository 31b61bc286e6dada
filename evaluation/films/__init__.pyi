from .film import episode as episode
from .film import film_title as film_title
from .film import filmed as filmed
from .film import show_pictures as show_pictures
from .film import until_stopped as until_stopped
