// Which rules exist, and in which order are they examined?
import type { Rule } from './rule.ts';
import { ADD_RULES } from './rules/add.ts';
import { CHAIN_RULES } from './rules/chain.ts';
import { CHECK_RULES } from './rules/check.ts';
import { DEL_RULES } from './rules/del.ts';
import { ENVIRONMENT_RULES } from './rules/environment.ts';
import { GC_RULES } from './rules/gc.ts';
import { REFUSE_RULES } from './rules/refuse.ts';
import { REPLY_RULES } from './rules/reply.ts';
import { REQUEST_RULES } from './rules/request.ts';
import { VERSION_RULES } from './rules/version.ts';

/** Every rule. The rules about all replies come last. */
export const RULES: readonly Rule[] = [
  ...VERSION_RULES,
  ...ENVIRONMENT_RULES,
  ...REQUEST_RULES,
  ...ADD_RULES,
  ...REFUSE_RULES,
  ...CHAIN_RULES,
  ...CHECK_RULES,
  ...DEL_RULES,
  ...GC_RULES,
  ...REPLY_RULES,
];
