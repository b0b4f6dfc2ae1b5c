// For NVRTC, which has these variables built in.
#pragma once
