// Which plugins made an attachment, what is each of them for, and what did it add?
import type { JSX } from 'preact';
import type { Result } from '../../cni/result.ts';
import { diffResults } from '../../lab/diff.ts';
import { renderTime } from '../../lab/words.ts';
import type { NodeAttachment } from '../../node/model.ts';
import type { ShownCall, ShownList, ShownNode, ShownPlugin, ShownRequest } from '../shown.ts';
import { Outcome } from './badge.tsx';

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

/** Nothing, if no file of this node configures the network, or the plugin is not in it any longer. */
function Explained(props: {
  readonly list: ShownList | undefined;
  readonly type: string | undefined;
}): JSX.Element | null {
  const { list, type } = props;
  const plugin = list?.plugins.find(one => one.type === type);
  if (plugin === undefined) return null;
  const { summary, ipam } = plugin;
  return (
    <>
      {summary !== undefined && <div>{summary}</div>}
      <details>
        <summary>options</summary>
        <Options plugin={plugin} />
        {ipam !== undefined && (
          <>
            <p>
              calls <code>{ipam.type}</code> for addresses
              {ipam.summary !== undefined && `: it ${ipam.summary}`}
            </p>
            <Options plugin={ipam} />
          </>
        )}
      </details>
    </>
  );
}

/** What the list sets, with its meaning; defaults are many, and only their values are shown. */
function Options(props: { readonly plugin: Pick<ShownPlugin, 'options' | 'defaults'> }): JSX.Element {
  const { options, defaults } = props.plugin;
  const left = defaults.map(({ name, value }) => assignment(name, value)).join(', ');
  return (
    <>
      {options.length > 0 && (
        <dl class="options">
          {options.map(({ name, value, meaning }) => (
            <div key={name}>
              <dt>
                <code>{assignment(name, value)}</code>
              </dt>
              {meaning !== undefined && <dd>{withCode(meaning)}</dd>}
            </div>
          ))}
        </dl>
      )}
      {left !== '' && (
        <p class="quiet">
          left at the default: <code>{left}</code>
        </p>
      )}
    </>
  );
}

function assignment(name: string, value: unknown): string {
  return `${name} = ${JSON.stringify(value)}`;
}

/** Descriptions mark names as Markdown does. */
function withCode(text: string): (string | JSX.Element)[] {
  return text.split('`').map((part, i) => (i % 2 === 0 ? part : <code key={i}>{part}</code>));
}
