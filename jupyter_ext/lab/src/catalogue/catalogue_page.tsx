/** The catalogue: data sets, models, their versions and deployments, and the groups that jobs queue in, as tabs. */

import { useEffect, useState } from 'react';
import type { ReactElement } from 'react';

import type { ISignal } from '@lumino/signaling';

import { Tabs } from '../page/tabs';

import { Datasets } from './datasets';
import { Deployments } from './deployments';
import { InstanceGroups } from './instance_groups';
import { Models } from './models';
import type { Uploads } from './uploads';
import { Versions } from './versions';

/** A tab, and with `deploy` the version for which the form of a deployment is open there. */
export interface Wanted {
  readonly tab: string;
  readonly deploy: string;
}

/** `asked` brings a tab to the front while the page is open. */
export function CataloguePage(props: {
  wanted: Wanted;
  asked: ISignal<object, Wanted>;
  uploads: Uploads;
  onTab: (tab: string) => void;
}): ReactElement {
  const [tab, setTab] = useState(props.wanted.tab);
  // The version for which the form of a deployment is open, as long as nobody has cancelled or sent it.
  const [deploying, setDeploying] = useState(props.wanted.deploy);
  const choose = (key: string): void => {
    setTab(key);
    props.onTab(key);
  };
  const deploy = (version: string): void => {
    setDeploying(version);
    choose('deployments');
  };
  const decided = (): void => {
    setDeploying('');
    props.onTab('deployments'); // so that the form is not open again after a reload
  };
  useEffect(() => {
    const onAsked = (_: object, wanted: Wanted): void => (wanted.deploy === '' ? choose(wanted.tab) : deploy(wanted.deploy));
    props.asked.connect(onAsked);
    return () => {
      props.asked.disconnect(onAsked);
    };
  }, [props.asked]);
  return (
    <div className="jp-edt-catalogue">
      <h2>Data sets, models, versions, deployments and instance groups</h2>
      <Tabs
        label="The catalogue"
        chosen={tab}
        onChoose={choose}
        tabs={[
          { key: 'datasets', label: 'Data sets', content: () => <Datasets uploads={props.uploads} /> },
          { key: 'models', label: 'Models', content: () => <Models /> },
          { key: 'versions', label: 'Versions', content: () => <Versions onDeploy={deploy} /> },
          { key: 'deployments', label: 'Deployments', content: () => <Deployments deploying={deploying} onDecided={decided} /> },
          { key: 'groups', label: 'Instance groups', content: () => <InstanceGroups /> }
        ]}
      />
    </div>
  );
}
