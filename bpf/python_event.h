/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The part of the ABI that is about Python: how the kernel programs find the frames of a CPython
 * thread (user space fills it in once per process), and what they say of a code object the first
 * time they meet it. bpf/event.h has the rest.
 */
#ifndef LTN_BPF_PYTHON_EVENT_H
#define LTN_BPF_PYTHON_EVENT_H

#include "bpf/event.h"

/* flags of struct ltn_python_frame: the low byte says what is known, the rest is the first line of
 * the code object (0 = not known or above 2^24). */
#define LTN_PYTHON_NO_OFFSET           0x01 /* the position lies outside the code object */
#define LTN_PYTHON_GENERATOR           0x02 /* the frame of a generator or coroutine */
#define LTN_PYTHON_FRAME_FIRST_LINE(f) ((ltn_u32)(f) >> 8)

/* What was left out of a walk: python_flags of struct ltn_event_stack. */
#define LTN_PYTHON_TRUNCATED 0x01 /* there were more frames */
#define LTN_PYTHON_BROKEN    0x02 /* a frame could not be read: its callers are missing */
#define LTN_PYTHON_CODE_LOST 0x04 /* a code object is new and its record could not be stored */

/* flags of struct ltn_python_process */
#define LTN_PYTHON_KEY_STAYS  0x01 /* the thread's key keeps the outer one of two interpreters */
#define LTN_PYTHON_LAST_INDEX 0x02 /* the position is an index, not an address */
#define LTN_PYTHON_NO_WALK    0x08 /* known, but not to be walked in the kernel */
#define LTN_PYTHON_CODE_REUSED                                                                     \
    0x04 /* no version in code objects: hash what they point to as well */

/*
 * Map python_processes, key tgid: where a CPython keeps what. Offsets are bytes unless the name
 * says words (8 bytes). A child made by fork has its parent's entry.
 */
struct ltn_python_process {
    ltn_u64 runtime;      /* address of _PyRuntime */
    ltn_u64 seed;         /* of identities: one for each entry that user space makes */
    ltn_u64 thread_shift; /* pthread_self() less the thread pointer */
    ltn_u64 code_mask;    /* the bits of a frame's code word that are the address */
    ltn_u64 code_type;    /* addresses of the types that objects must have, 0 = not known */
    ltn_u64 text_type;
    ltn_u64 bytes_type;
    ltn_u32 specific;       /* in struct pthread: table of blocks of thread-specific values */
    ltn_u32 specific_first; /* the first block; 0 = not known, search the list of threads */
    ltn_u16 key;            /* in the runtime: is the key made (int), the key (int); 0 = none */
    ltn_u16 interpreters;   /* in the runtime: head of the list */
    ltn_u16 interpreter_next;
    ltn_u16 interpreter_threads;
    ltn_u16 thread_next;
    ltn_u16 thread_id;
    ltn_u16 thread_frame;  /* the first frame, or the C frame that has it */
    ltn_u16 c_frame_first; /* in the C frame: the first frame; 0xffff = there is no C frame */
    ltn_u16 frame_bytes;   /* 112 at most */
    ltn_u8 code_word;
    ltn_u8 previous_word;
    ltn_u8 position_word;
    ltn_u8 position_shift; /* bits by which to move the word right, for LTN_PYTHON_LAST_INDEX */
    ltn_u8 position_scale; /* bytes of one step of the index, as a power of two */
    ltn_u8 owner_word;     /* 15 = frames have no owner */
    ltn_u8 owner_shift;
    ltn_u8 first_line_word; /* among the words of the identity */
    ltn_u8 first_line_shift;
    ltn_u8 kind_bit; /* in the state of a string */
    ltn_u8 compact_bit;
    ltn_u8 ascii_bit;
    ltn_u8 reserved[2];
    ltn_u16 object_type;
    ltn_u16 code_identity; /* the 88 bytes that identify a code object */
    ltn_u16 code_first_line;
    ltn_u16 code_first_traceable; /* 0 = has none */
    ltn_u16 code_file;
    ltn_u16 code_name;
    ltn_u16 reserved16;
    ltn_u16 code_table;
    ltn_u16 code_bytes;  /* the instructions */
    ltn_u16 text_length; /* of a string: code points, hash, state */
    ltn_u16 text_ascii;
    ltn_u16 text_compact;
    ltn_u16 bytes_size; /* of a bytes object: size, hash */
    ltn_u16 bytes_data;
    ltn_u32 flags;
    ltn_u32 version;    /* PY_VERSION_HEX >> 16, for user space */
    ltn_u32 thread_tid; /* in struct pthread: the thread's number (int); for user space */
};

#define LTN_PYTHON_FILE_BYTES 512
#define LTN_PYTHON_NAME_BYTES 256
#define LTN_PYTHON_PART_BYTES 2048
#define LTN_PYTHON_PARTS      16 /* of one line table */

/*
 * LTN_EVENT_PYTHON_CODE: a code object that no event had before, read by the thread that runs it. A
 * long line table takes several records; strings are in the first one only.
 */
struct ltn_event_python_code {
    struct ltn_event_hdr hdr;
    ltn_u64 identity;
    ltn_u32 version; /* of struct ltn_python_process: says how to read the line table */
    ltn_u32 first_line;
    ltn_u32 first_traceable; /* instructions below it (2 bytes each) set the frame up */
    ltn_u32 table_bytes;     /* of the whole line table */
    ltn_u32 part_at;         /* where this part of it begins */
    ltn_u16 part_bytes;
    ltn_u16 file_bytes;
    ltn_u16 name_bytes;
    ltn_u8 file_kind; /* bytes of a code point: 1, 2 or 4; 0 = not readable */
    ltn_u8 name_kind;
    ltn_u8 file_cut; /* longer than this record takes */
    ltn_u8 name_cut;
    ltn_u16 reserved;
    char file[LTN_PYTHON_FILE_BYTES];
    char name[LTN_PYTHON_NAME_BYTES];
    ltn_u8 part[LTN_PYTHON_PART_BYTES];
};

#ifndef __bpf__
_Static_assert(sizeof(struct ltn_python_process) == 136, "Python process is part of the ABI");
_Static_assert(sizeof(struct ltn_event_python_code) == 2880, "code record is part of the ABI");
#endif

#endif /* LTN_BPF_PYTHON_EVENT_H */
