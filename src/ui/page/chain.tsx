// Which plugins made an attachment, what is each of them for, and what did it add?
import type { JSX } from 'preact';
import type { Result } from '../../cni/result.ts';
import { diffResults } from '../../lab/diff.ts';
import { renderTime } from '../../lab/words.ts';
import type { NodeAttachment } from '../../node/model.ts';
import type { ShownCall, ShownList, ShownNode, ShownRequest } from '../shown.ts';
import { Outcome } from './badge.tsx';
import { Explained } from './explained.tsx';

/** The plugins in order: with their results if a trace of the ADD is stored, else by name. */
export function Chain(props: {
  readonly one: NodeAttachment | undefined;
  readonly node: ShownNode;
  readonly record: ShownRequest | undefined;
  /** What the list configures. */
  readonly list: ShownList | undefined;
}): JSX.Element {
  const { one, node, record, list } = props;
  const configured = node.networks.find(({ name }) => name === one?.network)?.plugins ?? [];
  const executables = one?.origin.executables ?? [];
  const names = executables.length > 0 ? executables : configured;
  return (
    <section aria-labelledby="chain-title">
      <h3 id="chain-title">Chain</h3>
      {record === undefined ? (
        <ol class="chain">
          {names.map((name, i) => (
            <li key={i}>
              <strong>{name.split('/').at(-1)}</strong>{' '}
              <span class="quiet">{name.includes('/') && name}</span>
              <Explained list={list} type={name.split('/').at(-1)} />
            </li>
          ))}
        </ol>
      ) : (
        <ol class="chain">
          {record.links.map((plugin, at) => (
            <Plugin
              key={at}
              plugin={plugin}
              changes={changesOf(record.links, at)}
              list={plugin.network === record.network ? list : undefined}
            />
          ))}
        </ol>
      )}
    </section>
  );
}

function Plugin(props: {
  readonly plugin: ShownCall;
  readonly changes: readonly string[];
  readonly list: ShownList | undefined;
}): JSX.Element {
  const { plugin, changes, list } = props;
  const { link, executable, verb, code, durationMs, message, details, stderr, result } = plugin;
  return (
    <li>
      <div class="bar">
        <strong>{link}</strong> <Outcome code={code} />
        <span class="quiet">
          {verb}, {renderTime(durationMs)}
        </span>
      </div>
      <div class="quiet path">{executable}</div>
      <Explained list={list} type={link} />
      {message !== undefined && <p class="notice broken">{[message, details].filter(Boolean).join(': ')}</p>}
      {changes.length > 0 && (
        <ul class="changes">
          {changes.map(change => (
            <li key={change}>
              <code>{change}</code>
            </li>
          ))}
        </ul>
      )}
      {stderr !== undefined && stderr !== '' && <Folded title="standard error" text={stderr} />}
      {result !== undefined && <Folded title="result" text={JSON.stringify(result, null, 2)} />}
    </li>
  );
}

function Folded({ title, text }: { readonly title: string; readonly text: string }): JSX.Element {
  return (
    <details>
      <summary>{title}</summary>
      <pre>{text}</pre>
    </details>
  );
}

/** Compared with the plugin before it in the same network; a result of another form has none. */
function changesOf(plugins: readonly ShownCall[], at: number): string[] {
  const plugin = plugins[at];
  if (plugin?.result === undefined) return [];
  const before = plugins.slice(0, at).findLast(one => one.network === plugin.network && one.result);
  try {
    return diffResults(before?.result as Result | undefined, plugin.result as unknown as Result);
  } catch {
    return [];
  }
}
