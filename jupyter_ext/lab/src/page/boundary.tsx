/** A mistake of ours in drawing a page is told in it, with a way to draw it again; without this the page would be blank. */

import { Component } from 'react';
import type { ReactNode } from 'react';

import { Failure } from './standing';

interface State {
  error: Error | null;
}

/** Draws its children, or what went wrong with them. */
export class Boundary extends Component<{ children: ReactNode }, State> {
  override state: State = { error: null };

  static getDerivedStateFromError(error: unknown): State {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === null) {
      return this.props.children;
    }
    const told = new Error(
      `This page could not be drawn: ${error.message}. Jobs are not touched by it. Please report it with what you did.`
    );
    return <Failure error={told} again={() => this.setState({ error: null })} />;
  }
}
