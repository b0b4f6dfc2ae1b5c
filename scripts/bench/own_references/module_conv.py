"""A module of convolutions: Conv2d, relu, pooling."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        return torch.relu(self.conv(x)).mean(dim=(2, 3))


class Right(Model):
    def forward(self, x):
        w = self.conv.weight
        made = F.unfold(x, w.shape[2:]).transpose(1, 2) @ w.flatten(1).T + self.conv.bias
        return torch.clamp(made, min=0).sum(1) / made.shape[1]


class WrongOrder(Model):
    def forward(self, x):
        return torch.relu(self.conv(x).mean(dim=(2, 3)))


def get_inputs():
    return [torch.rand(8, 3, 32, 32)]


def get_init_inputs():
    return [3, 16, 3]
