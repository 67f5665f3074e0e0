// How do several failures of a chain become one error that reports them all?
import { defined } from '../../cni/defined.ts';
import { CniError, describeError, toCniError } from '../../cni/errors.ts';

/** The same error with more details; code, message and plugin stay. */
export function withDetails(error: unknown, details: string, causes: readonly unknown[] = []): unknown {
  if (!(error instanceof CniError)) return new Error(details, { cause: error });
  return new CniError(error.code, error.message, {
    details: [error.details, details].filter(Boolean).join('; '),
    cause: causes.length ? new AggregateError([error, ...causes]) : error,
    ...defined({ plugin: error.plugin }),
  });
}

/** One error for several: a single one unchanged, else one with the first one's code and all of them in its details. */
export function joinErrors(what: string, errors: readonly unknown[]): unknown {
  const [first] = errors;
  if (errors.length === 1) return first;
  return new CniError(toCniError(first).code, `${what}: ${errors.length} steps failed`, {
    details: errors.map(describePluginError).join('; '),
    cause: new AggregateError(errors),
  });
}

/** An error in one sentence that names its plugin. */
export function describePluginError(error: unknown): string {
  const plugin = error instanceof CniError ? error.plugin : undefined;
  const text =
    error instanceof CniError && error.details ? `${error.message} (${error.details})` : describeError(error);
  return plugin === undefined ? text : `${plugin.type} ${plugin.verb}: ${text}`;
}
