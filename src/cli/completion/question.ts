// By which call does a shell ask for the words of an unfinished command line?

/** This word, then the words of the command line up to the cursor. It is in no usage text. */
export const COMPLETE = '__complete';

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
