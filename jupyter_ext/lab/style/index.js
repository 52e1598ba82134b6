import './base.css';
import './card.css';
import './panel.css';
