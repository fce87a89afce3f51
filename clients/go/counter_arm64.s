// SPDX-License-Identifier: Apache-2.0
// A file of assembly permits nanotime, which has no body.
