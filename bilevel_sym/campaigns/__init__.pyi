from .forecast import Forecast
from .plan import Campaign
from .results.brackets import MergedBrackets
from .status import CampaignStatus
from .task import Task

__all__ = ["Campaign", "CampaignStatus", "Forecast", "MergedBrackets", "Task"]
