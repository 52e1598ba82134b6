/** The styles of a monitor on a page that is not JupyterLab; `widget.config.mjs` puts the style sheets together. */
import css from './widget.css';

const ID = 'jp-edt-styles';

/** Put the styles into the page, once, and colours of its theme where it has no variables of JupyterLab. */
export function styled(element: HTMLElement): void {
  if (document.getElementById(ID) === null) {
    const style = document.createElement('style');
    style.id = ID;
    style.textContent = css;
    document.head.append(style);
  }
  if (getComputedStyle(element).getPropertyValue('--jp-layout-color1') === '') {
    element.classList.add('jp-edt-own-theme');
  }
}
