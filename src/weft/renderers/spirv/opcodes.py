"""Numbers of SPIR-V that the emitter writes, by the names of the specification.

Ref: SPIR-V specification 1.5, section 3 (binary form); extended instructions GLSL.std.450.
"""

from __future__ import annotations

from typing import Final

# instructions
EXT_INST_IMPORT: Final = 11
EXT_INST: Final = 12
MEMORY_MODEL: Final = 14
ENTRY_POINT: Final = 15
EXECUTION_MODE: Final = 16
CAPABILITY: Final = 17
TYPE_VOID: Final = 19
TYPE_BOOL: Final = 20
TYPE_INT: Final = 21
TYPE_FLOAT: Final = 22
TYPE_VECTOR: Final = 23
TYPE_ARRAY: Final = 28
TYPE_STRUCT: Final = 30
TYPE_POINTER: Final = 32
TYPE_FUNCTION: Final = 33
CONSTANT_TRUE: Final = 41
CONSTANT_FALSE: Final = 42
CONSTANT: Final = 43
FUNCTION: Final = 54
FUNCTION_PARAMETER: Final = 55
FUNCTION_END: Final = 56
FUNCTION_CALL: Final = 57
VARIABLE: Final = 59
LOAD: Final = 61
STORE: Final = 62
ACCESS_CHAIN: Final = 65
DECORATE: Final = 71
MEMBER_DECORATE: Final = 72
COMPOSITE_CONSTRUCT: Final = 80
COMPOSITE_EXTRACT: Final = 81
CONVERT_F_TO_U: Final = 109
CONVERT_F_TO_S: Final = 110
CONVERT_S_TO_F: Final = 111
CONVERT_U_TO_F: Final = 112
U_CONVERT: Final = 113
S_CONVERT: Final = 114
F_CONVERT: Final = 115
CONVERT_U_TO_PTR: Final = 120
BITCAST: Final = 124
F_NEGATE: Final = 127
I_ADD: Final = 128
F_ADD: Final = 129
I_SUB: Final = 130
F_SUB: Final = 131
I_MUL: Final = 132
F_MUL: Final = 133
U_DIV: Final = 134
S_DIV: Final = 135
F_DIV: Final = 136
U_MOD: Final = 137
S_REM: Final = 138
LOGICAL_EQUAL: Final = 164
LOGICAL_NOT_EQUAL: Final = 165
LOGICAL_OR: Final = 166
LOGICAL_AND: Final = 167
LOGICAL_NOT: Final = 168
SELECT: Final = 169
I_EQUAL: Final = 170
I_NOT_EQUAL: Final = 171
U_LESS_THAN: Final = 176
S_LESS_THAN: Final = 177
U_LESS_THAN_EQUAL: Final = 178
S_LESS_THAN_EQUAL: Final = 179
F_ORD_EQUAL: Final = 180
F_UNORD_NOT_EQUAL: Final = 183
F_ORD_LESS_THAN: Final = 184
F_ORD_LESS_THAN_EQUAL: Final = 188
SHIFT_RIGHT_LOGICAL: Final = 194
SHIFT_RIGHT_ARITHMETIC: Final = 195
SHIFT_LEFT_LOGICAL: Final = 196
BITWISE_OR: Final = 197
BITWISE_XOR: Final = 198
BITWISE_AND: Final = 199
NOT: Final = 200
BIT_COUNT: Final = 205
CONTROL_BARRIER: Final = 224
MEMORY_BARRIER: Final = 225
ATOMIC_LOAD: Final = 227
ATOMIC_EXCHANGE: Final = 229
ATOMIC_COMPARE_EXCHANGE: Final = 230
ATOMIC_I_ADD: Final = 234
ATOMIC_I_SUB: Final = 235
ATOMIC_S_MIN: Final = 236
ATOMIC_U_MIN: Final = 237
ATOMIC_S_MAX: Final = 238
ATOMIC_U_MAX: Final = 239
ATOMIC_AND: Final = 240
ATOMIC_OR: Final = 241
ATOMIC_XOR: Final = 242
PHI: Final = 245
LOOP_MERGE: Final = 246
SELECTION_MERGE: Final = 247
LABEL: Final = 248
BRANCH: Final = 249
BRANCH_CONDITIONAL: Final = 250
RETURN: Final = 253
RETURN_VALUE: Final = 254

# GLSL.std.450
ROUND_EVEN: Final = 2
TRUNC: Final = 3
F_ABS: Final = 4
FLOOR: Final = 8
CEIL: Final = 9
SQRT: Final = 31
FMA: Final = 50
FIND_U_MSB: Final = 75

# capabilities
SHADER: Final = 1
FLOAT64: Final = 10
INT64: Final = 11
INT64_ATOMICS: Final = 12
INT16: Final = 22
INT8: Final = 39
STORAGE_16: Final = 4433
STORAGE_8: Final = 4448
DENORM_PRESERVE: Final = 4464
SIGNED_ZERO_INF_NAN_PRESERVE: Final = 4466
ROUNDING_MODE_RTE: Final = 4467
PHYSICAL_ADDRESSES: Final = 5347

# storage classes
INPUT: Final = 1
WORKGROUP: Final = 4
FUNCTION_CLASS: Final = 7
PUSH_CONSTANT: Final = 9
PHYSICAL: Final = 5349

# decorations and built-in variables
BLOCK: Final = 2
BUILT_IN: Final = 11
OFFSET: Final = 35
NO_CONTRACTION: Final = 42
NUM_WORKGROUPS: Final = 24
WORKGROUP_ID: Final = 26
LOCAL_INVOCATION_ID: Final = 27

# execution modes and models
LOCAL_SIZE: Final = 17
MODE_DENORM_PRESERVE: Final = 4459
MODE_SIGNED_ZERO_INF_NAN_PRESERVE: Final = 4461
MODE_ROUNDING_RTE: Final = 4462
GL_COMPUTE: Final = 5
PHYSICAL_64: Final = 5348
GLSL_450: Final = 1

# memory operands, scopes and semantics
VOLATILE: Final = 1
ALIGNED: Final = 2
SCOPE_DEVICE: Final = 1
SCOPE_GROUP: Final = 2
SCOPE_ITEM: Final = 4
ACQUIRE: Final = 0x2
RELEASE: Final = 0x4
ACQUIRE_RELEASE: Final = 0x8
BUFFERS: Final = 0x40
GROUP_MEMORY: Final = 0x100
