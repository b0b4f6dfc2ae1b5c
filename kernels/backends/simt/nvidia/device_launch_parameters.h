// The built-in variables are those of the emulator.
#pragma once
