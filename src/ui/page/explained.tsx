// What is a plugin of the chain for, and what does the list configure it to do?
import type { JSX } from 'preact';
import type { ShownList, ShownPlugin } from '../shown.ts';

/** Nothing, if no file of this node configures the network, or the plugin is not in it any longer. */
export function Explained(props: {
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
