// Run host-local on its own, for anyone who wants a single-purpose executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { hostLocal } from './plugin.ts';

await runPlugin(hostLocal);
